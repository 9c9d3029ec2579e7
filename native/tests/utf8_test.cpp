#include <catch2/catch.hpp>

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sllm/utf8.hpp"

using sllm::Utf8Assembler;

namespace {

const std::string bad = "\xEF\xBF\xBD";

std::string all(std::string_view bytes) {
    Utf8Assembler assembler;
    std::string text = assembler.push(bytes);
    return text + assembler.finish();
}

std::string one_by_one(std::string_view bytes) {
    Utf8Assembler assembler;
    std::string text;
    for (const char byte : bytes) {
        text += assembler.push(std::string_view(&byte, 1));
    }
    return text + assembler.finish();
}

bool is_valid(const std::string &text) {
    try {
        return !nlohmann::json(text).dump().empty();
    } catch (const nlohmann::json::type_error &) {
        return false;
    }
}

} // namespace

TEST_CASE("Characters come out whole, wherever they are cut", "[utf8]") {
    const std::string text = "a\u00E9\u20AC\U0001F600z\u07FF\uFFFF\U0010FFFF\uD7FF\uE000";
    for (std::size_t first = 0; first <= text.size(); ++first) {
        for (std::size_t second = first; second <= text.size(); ++second) {
            Utf8Assembler assembler;
            std::string got = assembler.push(text.substr(0, first));
            got += assembler.push(text.substr(first, second - first));
            got += assembler.push(text.substr(second));
            got += assembler.finish();
            CHECK(text == got);
        }
    }
}

TEST_CASE("An unfinished character is held back until it is complete", "[utf8]") {
    Utf8Assembler assembler;
    CHECK("x" == assembler.push("x\xF0\x9F"));
    CHECK("" == assembler.push("\x98"));
    CHECK("\U0001F600y" == assembler.push("\x80y"));
    CHECK("" == assembler.finish());
}

TEST_CASE("An unfinished character at the end is one replacement character", "[utf8]") {
    for (const char *cut : {"\xC3", "\xE2\x82", "\xE2", "\xF0\x9F\x98", "\xF0"}) {
        Utf8Assembler assembler;
        CHECK("" == assembler.push(cut));
        CHECK(bad == assembler.finish());
        CHECK("a" == assembler.push("a"));
        CHECK("" == assembler.finish());
    }
}

TEST_CASE("Invalid bytes are replaced as Unicode recommends", "[utf8]") {
    const auto times = [](int count) {
        std::string text;
        while (count-- > 0) {
            text += bad;
        }
        return text;
    };
    // The example of Unicode 15, table 3-8, and its neighbours 3-9 to 3-11.
    CHECK(times(8) == all("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"));
    CHECK(times(8) == all("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"));
    CHECK(times(4) + times(1) + "A" + times(2) + "B" ==
          all("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"));
    CHECK(times(4) + "A" == all("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"));
}

TEST_CASE("Every sequence of three bytes gives valid text, the same however it is cut", "[utf8]") {
    // Bytes at each edge of the table of well-formed sequences.
    const std::string edges = std::string("\x00\x41\x7F", 3) +
                              "\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0"
                              "\xF1\xF3\xF4\xF5\xFF";
    for (const char first : edges) {
        for (const char second : edges) {
            for (const char third : edges) {
                for (const char fourth : edges) {
                    const std::string bytes{first, second, third, fourth};
                    const std::string text = all(bytes);
                    if (!is_valid(text) || text != one_by_one(bytes)) {
                        FAIL("bytes " << Catch::StringMaker<std::string>::convert(bytes));
                    }
                }
            }
        }
    }
    SUCCEED();
}
