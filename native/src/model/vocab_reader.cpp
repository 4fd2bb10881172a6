#include "model/vocab_reader.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "contract/errors.hpp"
#include "model/gguf_file.hpp"
#include "model/printable.hpp"

namespace edgellm {
namespace {

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";

enum class TokenKind : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Keys of tokens that end a sequence.
constexpr std::array kEndTokenKeys = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
// Control tokens that end a turn in well-known chat formats, whatever the keys say: one list with the Python side.
constexpr auto kEndTokenTexts = std::to_array<std::string_view>({
#include "model/end_token_texts.inc"
});

[[noreturn]] void refuse(const GgufFile& file, const std::string& key, const std::string& what) {
    throw ModelFileError("model file '" + file.path().string() + "': key '" + key + "' " + what +
                         "; convert the model again with a current tool");
}

template <typename T>
const std::vector<T>* find_array(const GgufFile& file, const char* key, const char* expected) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return nullptr;
    const auto* array = std::get_if<GgufArray>(value);
    const auto* typed = array == nullptr ? nullptr : std::get_if<std::vector<T>>(array);
    if (typed == nullptr) refuse(file, key, std::string("is not an array of ") + expected);
    return typed;
}

// One step of a UTF-8 decoder. A malformed byte stands for itself: length 1, code point -1.
struct CodePoint {
    int32_t value;
    std::size_t length_bytes;
};

CodePoint next_code_point(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (length == 1 || length > text.size()) return {-1, 1};
    int32_t value = lead & (0xFF >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return {-1, 1};
        value = (value << 6) | (byte(i) & 0x3F);
    }
    return {value, length};
}

// Byte-level vocabularies write printable Latin-1 bytes as themselves and the other 68 bytes, in order, as
// U+0100 and up.
class ByteLevelAlphabet {
public:
    ByteLevelAlphabet() {
        byte_of_.fill(-1);
        int32_t next_substitute = 0x100;
        for (int32_t byte = 0; byte < 256; ++byte) {
            const bool printable_latin1 =
                (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
            byte_of_[static_cast<std::size_t>(printable_latin1 ? byte : next_substitute++)] =
                static_cast<int16_t>(byte);
        }
    }

    // Characters outside the alphabet (added tokens written plainly) keep their own bytes.
    std::string decode(std::string_view token) const {
        std::string bytes;
        while (!token.empty()) {
            const CodePoint point = next_code_point(token);
            const bool known = point.value >= 0 && static_cast<std::size_t>(point.value) < byte_of_.size() &&
                               byte_of_[static_cast<std::size_t>(point.value)] >= 0;
            if (known) {
                bytes += static_cast<char>(byte_of_[static_cast<std::size_t>(point.value)]);
            } else {
                bytes += token.substr(0, point.length_bytes);
            }
            token.remove_prefix(point.length_bytes);
        }
        return bytes;
    }

private:
    std::array<int16_t, 256 + 68> byte_of_{};
};

std::string decode_sentencepiece(std::string_view token) {
    constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
    std::string bytes;
    while (!token.empty()) {
        if (token.starts_with(kSpaceMark)) {
            bytes += ' ';
            token.remove_prefix(kSpaceMark.size());
        } else {
            bytes += token.front();
            token.remove_prefix(1);
        }
    }
    return bytes;
}

int32_t hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

// The byte that "<0xNN>" names, or -1.
int32_t named_byte(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const int32_t high = hex_digit(token[3]);
    const int32_t low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::vector<TokenKind> read_kinds(const GgufFile& file, std::size_t token_count) {
    std::vector<TokenKind> kinds(token_count, TokenKind::kNormal);
    const auto* raw = find_array<int64_t>(file, kTypesKey, "integers");
    if (raw == nullptr) return kinds;
    if (raw->size() != token_count) {
        refuse(file, kTypesKey,
               "has " + std::to_string(raw->size()) + " values for " + std::to_string(token_count) + " tokens");
    }
    for (std::size_t i = 0; i < token_count; ++i) {
        const int64_t kind = (*raw)[i];
        if (kind < static_cast<int64_t>(TokenKind::kNormal) || kind > static_cast<int64_t>(TokenKind::kByte))
            refuse(file, kTypesKey, "has the unknown value " + std::to_string(kind) + " at token " + std::to_string(i));
        kinds[i] = static_cast<TokenKind>(kind);
    }
    return kinds;
}

std::vector<int32_t> read_end_tokens(const GgufFile& file, const std::vector<std::string_view>& tokens,
                                     const std::vector<TokenKind>& kinds) {
    std::vector<int32_t> ids;
    const auto add = [&](std::size_t id) {
        const auto value = static_cast<int32_t>(id);
        if (std::find(ids.begin(), ids.end(), value) == ids.end()) ids.push_back(value);
    };
    for (const char* key : kEndTokenKeys) {
        if (const auto id = file.optional_int(key, 0, static_cast<int64_t>(tokens.size()) - 1))
            add(static_cast<std::size_t>(*id));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (kinds[i] != TokenKind::kControl) continue;
        if (std::find(kEndTokenTexts.begin(), kEndTokenTexts.end(), tokens[i]) != kEndTokenTexts.end()) add(i);
    }
    return ids;
}

}  // namespace

VocabSpec read_vocab(const GgufFile& file, int32_t vocab_size) {
    const std::string_view model = file.require_string(kModelKey);
    const bool byte_level = model == "gpt2";
    if (!byte_level && model != "llama") {
        refuse(file, kModelKey,
               "is '" + printable(model) + "'; the supported vocabularies are 'gpt2' (byte-level) and " +
                   "'llama' (SentencePiece)");
    }
    const auto* tokens = find_array<std::string_view>(file, kTokensKey, "texts");
    if (tokens == nullptr) refuse(file, kTokensKey, "is missing");
    if (tokens->size() != static_cast<std::size_t>(vocab_size)) {
        refuse(file, kTokensKey,
               "has " + std::to_string(tokens->size()) + " tokens, but tensor 'token_embd.weight' has " +
                   std::to_string(vocab_size) + " rows");
    }
    const std::vector<TokenKind> kinds = read_kinds(file, tokens->size());

    VocabSpec vocab;
    vocab.token_bytes.resize(tokens->size());
    vocab.special_text.resize(tokens->size());
    vocab.is_special.resize(tokens->size());
    const ByteLevelAlphabet alphabet;
    for (std::size_t i = 0; i < tokens->size(); ++i) {
        const std::string_view token = (*tokens)[i];
        switch (kinds[i]) {
            case TokenKind::kUnknown:
            case TokenKind::kControl:
            case TokenKind::kUnused:
                vocab.is_special[i] = true;
                vocab.special_text[i] = token;
                break;
            case TokenKind::kUserDefined: vocab.token_bytes[i] = token; break;
            case TokenKind::kNormal:
            case TokenKind::kByte: {
                const int32_t byte = byte_level ? -1 : named_byte(token);
                if (byte >= 0) {
                    vocab.token_bytes[i] = std::string(1, static_cast<char>(byte));
                } else if (kinds[i] == TokenKind::kByte && !byte_level) {
                    refuse(file, kTokensKey,
                           "marks token " + std::to_string(i) + " as a byte, but its text is not '<0xNN>'");
                } else {
                    vocab.token_bytes[i] = byte_level ? alphabet.decode(token) : decode_sentencepiece(token);
                }
                break;
            }
        }
    }
    vocab.end_token_ids = read_end_tokens(file, *tokens, kinds);
    vocab.strip_leading_space = !byte_level && file.optional_bool("tokenizer.ggml.add_space_prefix").value_or(true);
    return vocab;
}

}  // namespace edgellm
