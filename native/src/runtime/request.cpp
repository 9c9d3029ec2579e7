#include "sllm/request.hpp"

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace sllm {
namespace {

using Json = nlohmann::json;

/// Reads the fields of one request and keeps the first complaint.
class Fields {
  public:
    explicit Fields(const Json &json) : json_(json) {}

    [[nodiscard]] const std::string &problem() const { return problem_; }

    void complain(std::string_view field, std::string_view remedy) {
        if (problem_.empty()) {
            problem_ = "cannot use " + std::string(field) + "; give " + std::string(remedy);
        }
    }

    [[nodiscard]] const Json *find(const char *field) const {
        const auto found = json_.find(field);
        return found == json_.end() ? nullptr : &*found;
    }

    void text(const char *field, std::string &into) {
        if (const Json *value = find(field)) {
            if (value->is_string()) {
                into = value->get<std::string>();
            } else {
                complain(field, "a string");
            }
        }
    }

    /// A whole number in [low, high]; 1.0 is not one.
    template <typename Number>
    void whole(const char *field, Number low, Number high, std::string_view remedy, Number &into) {
        const Json *value = find(field);
        if (value == nullptr) {
            return;
        }
        if (value->is_number_unsigned()) {
            const auto number = value->get<std::uint64_t>();
            if (std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high)) {
                into = static_cast<Number>(number);
                return;
            }
        } else if (value->is_number_integer()) {
            const auto number = value->get<std::int64_t>();
            if (std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high)) {
                into = static_cast<Number>(number);
                return;
            }
        }
        complain(field, remedy);
    }

    template <typename Allowed>
    void real(const char *field, std::string_view remedy, Allowed allowed, double &into) {
        if (const Json *value = find(field)) {
            const double number = value->is_number() ? value->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
            if (std::isfinite(number) && allowed(number)) {
                into = number;
            } else {
                complain(field, remedy);
            }
        }
    }

    void stop_strings(std::vector<std::string> &into) {
        const Json *value = find("stop");
        if (value == nullptr) {
            return;
        }
        constexpr std::string_view remedy = "an array of strings that are not empty";
        if (!value->is_array()) {
            complain("stop", remedy);
            return;
        }
        for (const Json &word : *value) {
            if (!word.is_string() || word.get_ref<const std::string &>().empty()) {
                complain("stop", remedy);
                return;
            }
            into.push_back(word.get<std::string>());
        }
    }

    /// Exactly one of prompt and prompt_segments.
    void prompt(Prompt &into) {
        const bool whole = json_.contains("prompt");
        if (whole == json_.contains("prompt_segments")) {
            complain(whole ? "prompt together with prompt_segments" : "a request without prompt",
                     whole ? "one of them" : "the text as prompt, or prompt_segments");
            return;
        }
        into.whole = whole;
        if (whole) {
            std::string text;
            this->text("prompt", text);
            into.segments.emplace_back(std::move(text));
            return;
        }
        const Json &segments = *find("prompt_segments");
        if (!segments.is_array() || segments.empty()) {
            complain("prompt_segments", "an array of objects with text or ids");
            return;
        }
        for (const Json &value : segments) {
            std::optional<Segment> read = segment(value);
            if (!read) {
                return; // and has complained
            }
            into.segments.push_back(*std::move(read));
        }
    }

    /// Refuse whatever is not in `known`.
    template <typename Known> void only(const Known &known) {
        for (const auto &[key, unused] : json_.items()) {
            bool found = false;
            for (const std::string_view name : known) {
                found = found || name == key;
            }
            if (!found) {
                complain("the field '" + key.substr(0, 100) + "'", "only fields of the protocol");
            }
        }
    }

  private:
    /// As in upstream workers, ids go before a text in the same segment.
    std::optional<Segment> segment(const Json &value) {
        constexpr std::string_view remedy = "segments that are objects with text or ids";
        if (!value.is_object()) {
            complain("prompt_segments", remedy);
            return std::nullopt;
        }
        Fields fields(value);
        fields.only(segment_fields);
        std::string text;
        fields.text("text", text);
        std::vector<Token> ids;
        if (const Json *list = fields.find("ids")) {
            fields.ids(*list, ids);
        } else if (fields.find("text") == nullptr) {
            fields.complain("a segment without text and ids", "one of them");
        }
        if (problem_.empty() && !fields.problem_.empty()) {
            problem_ = "cannot read prompt_segments: " + fields.problem_;
        }
        if (!problem_.empty()) {
            return std::nullopt;
        }
        if (fields.find("ids") != nullptr) {
            return ids;
        }
        return text;
    }

    void ids(const Json &list, std::vector<Token> &into) {
        constexpr std::string_view remedy = "an array of whole numbers from 0 to 2^31-1";
        if (!list.is_array()) {
            complain("ids", remedy);
            return;
        }
        into.reserve(list.size());
        for (const Json &value : list) {
            if (!value.is_number_unsigned() || !std::in_range<Token>(value.get<std::uint64_t>())) {
                complain("ids", remedy);
                return;
            }
            into.push_back(static_cast<Token>(value.get<std::uint64_t>()));
        }
    }

    static constexpr std::string_view segment_fields[] = {"text", "ids"};

    const Json &json_;
    std::string problem_;
};

constexpr std::string_view generate_fields[] = {
    "prompt", "prompt_segments", "max_new_tokens",   "temperature", "top_p", "top_k", "seed",
    "stop",   "session_id",      "cancel_request_id"};
constexpr std::string_view session_fields[] = {"op", "session_id"};

RefusedRequest refuse(std::string message, std::optional<std::uint64_t> cancel_id = {}) {
    return {{std::move(message)}, cancel_id};
}

/// The name of a session; empty if there is none, or it is longer than anything meant as a name.
std::string read_session_id(Fields &fields) {
    constexpr std::size_t most = 1024;
    std::string id;
    fields.text("session_id", id);
    if (id.size() > most) {
        fields.complain("session_id", "a name of at most 1024 bytes");
        id.clear();
    }
    return id;
}

Request read_generate(const Json &json, bool supports_cancel) {
    Fields fields(json);
    GenerateRequest request;
    if (fields.find("cancel_request_id") != nullptr) {
        std::uint64_t id = 0;
        fields.whole("cancel_request_id", std::uint64_t{1},
                     std::numeric_limits<std::uint64_t>::max(), "a whole number from 1 to 2^64-1",
                     id);
        if (id != 0) {
            request.cancel_id = id;
        }
        if (!supports_cancel) {
            return refuse("cannot use cancel_request_id; this worker did not offer "
                          "supports_cancel, leave it out");
        }
    }
    request.session_id = read_session_id(fields);
    fields.prompt(request.prompt);
    fields.whole("max_new_tokens", std::numeric_limits<std::int64_t>::min(),
                 std::numeric_limits<std::int64_t>::max(), "a whole number of 64 bits",
                 request.max_new_tokens);
    fields.real(
        "temperature", "a number from 0", [](double value) { return value >= 0; },
        request.sampling.temperature);
    fields.real(
        "top_p", "a number above 0 and at most 1",
        [](double value) { return value > 0 && value <= 1; }, request.sampling.top_p);
    fields.whole("top_k", 0, std::numeric_limits<std::int32_t>::max(),
                 "a whole number from 0 to 2^31-1", request.sampling.top_k);
    fields.whole("seed", std::uint64_t{0},
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
                 "a whole number from 0 to 2^63-1", request.sampling.seed);
    fields.stop_strings(request.stop);
    fields.only(generate_fields);
    if (!fields.problem().empty()) {
        return refuse(fields.problem(), request.cancel_id);
    }
    return request;
}

Request read_operation(const Json &json, const Json &op) {
    using Operation = SessionRequest::Operation;
    const std::string name = op.is_string() ? op.get<std::string>() : std::string();
    Operation operation{};
    if (name == "open") {
        operation = Operation::open;
    } else if (name == "close") {
        operation = Operation::close;
    } else if (name == "reset") {
        operation = Operation::reset;
    } else {
        return refuse("cannot do op '" + (op.is_string() ? name : op.type_name()) +
                      "'; give open, close or reset, or no op to generate");
    }
    Fields fields(json);
    const std::string session_id = read_session_id(fields);
    if (session_id.empty()) {
        fields.complain("op " + name + " without session_id", "the name of a session");
    }
    fields.only(session_fields);
    if (!fields.problem().empty()) {
        return refuse(fields.problem());
    }
    return SessionRequest{operation, session_id};
}

} // namespace

Request read_request(const Json &json, bool supports_cancel) {
    if (!json.is_object()) {
        return refuse("cannot read the request; give a JSON object");
    }
    const auto op = json.find("op");
    return op == json.end() ? read_generate(json, supports_cancel) : read_operation(json, *op);
}

const Json *ping_nonce(const Json &json) {
    if (!json.is_object() || json.size() != 2) {
        return nullptr;
    }
    const auto op = json.find("op");
    const auto nonce = json.find("nonce");
    if (op == json.end() || nonce == json.end() || *op != "ping" || !nonce->is_number_integer()) {
        return nullptr;
    }
    return &*nonce;
}

} // namespace sllm
