#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "sllm/line_splitter.hpp"

namespace {

/// Lines as they come; "!" stands for one that was too long.
struct Receiver {
    std::vector<std::string> seen;
    sllm::LineSplitter splitter;

    explicit Receiver(std::size_t limit)
        : splitter(limit, {[this](std::string_view line) { seen.emplace_back(line); },
                           [this] { seen.emplace_back("!"); }}) {}
};

using Seen = std::vector<std::string>;

} // namespace

TEST_CASE("Lines come out the same however the bytes are cut", "[lines]") {
    const std::string text = "one\n\ntwo\nthree is long\n4\nrest";
    for (std::size_t first = 0; first <= text.size(); ++first) {
        for (std::size_t second = first; second <= text.size(); ++second) {
            Receiver receiver(5);
            receiver.splitter.feed(text.substr(0, first));
            receiver.splitter.feed(text.substr(first, second - first));
            receiver.splitter.feed(text.substr(second));
            receiver.splitter.finish();
            CHECK(Seen{"one", "two", "!", "4", "rest"} == receiver.seen);
        }
    }
}

TEST_CASE("A line of exactly the limit is taken, one more is not", "[lines]") {
    Receiver receiver(4);
    receiver.splitter.feed("1234\n12345\n");
    CHECK(Seen{"1234", "!"} == receiver.seen);
}

TEST_CASE("A line over the limit is reported once, before it ends", "[lines]") {
    Receiver receiver(4);
    receiver.splitter.feed("12345");
    CHECK(Seen{"!"} == receiver.seen);
    receiver.splitter.feed("678901234567890");
    receiver.splitter.feed("\nok\n");
    CHECK(Seen{"!", "ok"} == receiver.seen);
}

TEST_CASE("An end of the stream inside of a line over the limit adds nothing", "[lines]") {
    Receiver receiver(2);
    receiver.splitter.feed("12345");
    receiver.splitter.finish();
    CHECK(Seen{"!"} == receiver.seen);
}
