#include <catch2/catch.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "sllm/stop_words.hpp"
#include "sllm/text_stream.hpp"

using sllm::StopWords;

namespace {

using Words = std::vector<std::string>;

struct Shown {
    std::string text;
    bool stopped;
    friend bool operator==(const Shown &, const Shown &) = default;
};

std::ostream &operator<<(std::ostream &stream, const Shown &shown) {
    return stream << '"' << shown.text << (shown.stopped ? "\" stopped" : "\" not stopped");
}

/// Push `text` in pieces; bit n of `cuts` cuts behind byte n.
Shown show(const Words &words, std::string_view text, unsigned cuts) {
    StopWords stop_words(words);
    Shown shown{"", false};
    std::string piece;
    for (std::size_t at = 0; at < text.size() && !shown.stopped; ++at) {
        piece += text[at];
        if (at + 1 == text.size() || (cuts >> at & 1U) != 0) {
            const StopWords::Result result = stop_words.push(piece);
            shown.text += result.text;
            shown.stopped = result.stopped;
            piece.clear();
        }
    }
    if (!shown.stopped) {
        shown.text += stop_words.finish();
    }
    return shown;
}

/// What is to be shown, found the slow way: the word that is complete first, the longest of those.
Shown expect(const Words &words, std::string_view text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string &word : words) {
            if (text.substr(0, end).ends_with(word)) {
                longest = std::max(longest, word.size());
            }
        }
        if (longest > 0) {
            return {std::string(text.substr(0, end - longest)), true};
        }
    }
    return {std::string(text), false};
}

} // namespace

TEST_CASE("Nothing of a stop string is shown, however the text is cut", "[stop]") {
    const Words sets[] = {{"END"},    {"aab"},        {"aaa"},       {"abab", "ba"},
                          {"a"},      {"abcd", "bc"}, {"bc", "abc"}, {"xyz"},
                          {"\u20AC"}, {"aabaab"},     {"ab", "b"},   {"END", "EN", "D"}};
    const std::string_view texts[] = {"xxENDyy", "aaaab",   "abababa", "EEND",     "ENENEND",
                                      "xabcdx",  "xyxyxyz", "aaaa",    "1\u20AC2", "aabaaabaab"};
    for (const Words &words : sets) {
        for (const std::string_view text : texts) {
            const Shown expected = expect(words, text);
            for (unsigned cuts = 0; cuts < 1U << (text.size() - 1); ++cuts) {
                const Shown shown = show(words, text, cuts);
                if (!(expected == shown)) {
                    CAPTURE(words, text, cuts);
                    REQUIRE(expected == shown);
                }
            }
        }
    }
    SUCCEED();
}

TEST_CASE("Every text over two letters is cut as the definition says", "[stop]") {
    const Words sets[] = {{"aba"}, {"aab", "ba"}, {"bbab"}, {"abab", "bb"}, {"aaaa", "abba"}};
    for (const Words &words : sets) {
        for (unsigned letters = 0; letters < 1U << 10U; ++letters) {
            std::string text;
            for (unsigned at = 0; at < 10; ++at) {
                text += (letters >> at & 1U) != 0 ? 'b' : 'a';
            }
            for (const unsigned cuts : {0U, 0x3FFU, 0x155U, letters}) {
                if (!(expect(words, text) == show(words, text, cuts))) {
                    CAPTURE(words, text, cuts);
                    REQUIRE(expect(words, text) == show(words, text, cuts));
                }
            }
        }
    }
    SUCCEED();
}

TEST_CASE("Text that cannot become a stop string is shown at once", "[stop]") {
    StopWords stop_words({"END"});
    CHECK("hello " == stop_words.push("hello E").text);
    CHECK("" == stop_words.push("N").text);
    CHECK("ENx" == stop_words.push("x").text);
    CHECK("" == stop_words.finish());
}

TEST_CASE("After a stop string nothing is shown any more", "[stop]") {
    StopWords stop_words({"."});
    CHECK("one" == stop_words.push("one. two").text);
    const StopWords::Result after = stop_words.push("three");
    CHECK(after.stopped);
    CHECK("" == after.text);
    CHECK("" == stop_words.finish());
}

TEST_CASE("Without stop strings all text is shown at once", "[stop]") {
    StopWords stop_words({});
    CHECK("anything" == stop_words.push("anything").text);
}

TEST_CASE("A stop string of a million bytes costs no more than its length", "[stop]") {
    const std::string word = std::string(1'000'000, 'a') + "b";
    StopWords stop_words({word});
    CHECK("" == stop_words.push(std::string(1'000'000, 'a')).text);
    CHECK(1'000'000 == stop_words.push(std::string(1'000'000, 'a')).text.size());
    CHECK(1'000'001 == stop_words.push("c").text.size());
}

TEST_CASE("A text stream assembles characters before it looks for stop strings", "[stop]") {
    sllm::TextStream stream({"\u20AC"});
    CHECK("a" == stream.push("a\xE2").text);
    CHECK("" == stream.push("\x82").text);
    const StopWords::Result last = stream.push("\xACz");
    CHECK(last.stopped);
    CHECK("" == last.text);
}

TEST_CASE("A text stream shows at its end what it held back", "[stop]") {
    sllm::TextStream stream({"END"});
    CHECK("x" == stream.push("xEN\xC3").text);
    CHECK("EN\uFFFD" == stream.finish().text);
}

TEST_CASE("The replacement character of a cut end can be a stop string", "[stop]") {
    sllm::TextStream stream({"\uFFFD"});
    CHECK("x" == stream.push("x\xC3").text);
    CHECK(stream.finish().stopped);
}
