#include "sllm/stop_words.hpp"

#include <algorithm>
#include <utility>

namespace sllm {

StopWords::StopWords(const std::vector<std::string> &words) {
    for (const std::string &word : words) {
        Automaton automaton{word, std::vector<std::size_t>(word.size() + 1, 0), 0};
        std::size_t border = 0;
        for (std::size_t at = 1; at < word.size(); ++at) {
            while (border > 0 && word[at] != word[border]) {
                border = automaton.fallback[border];
            }
            border += word[at] == word[border] ? 1U : 0U;
            automaton.fallback[at + 1] = border;
        }
        automata_.push_back(std::move(automaton));
    }
}

bool StopWords::advance(Automaton &automaton, char byte) {
    std::size_t &matched = automaton.matched;
    while (matched > 0 && automaton.word[matched] != byte) {
        matched = automaton.fallback[matched];
    }
    matched += automaton.word[matched] == byte ? 1U : 0U;
    return matched == automaton.word.size();
}

StopWords::Result StopWords::push(std::string_view text) {
    if (stopped_) {
        return {{}, true};
    }
    for (const char byte : text) {
        held_ += byte;
        std::size_t longest = 0;
        for (Automaton &automaton : automata_) {
            if (advance(automaton, byte)) {
                longest = std::max(longest, automaton.word.size());
            }
        }
        if (longest > 0) {
            stopped_ = true;
            held_.resize(held_.size() - longest);
            return {std::exchange(held_, {}), true};
        }
    }
    std::size_t undecided = 0;
    for (const Automaton &automaton : automata_) {
        undecided = std::max(undecided, automaton.matched);
    }
    std::string shown = held_.substr(0, held_.size() - undecided);
    held_.erase(0, shown.size());
    return {std::move(shown), false};
}

std::string StopWords::finish() { return std::exchange(held_, {}); }

} // namespace sllm
