// ContextCache: KV pages of past prompts and answers, found again by their tokens.
// A tree of pages per domain: an inner node is a full page, a leaf may be a partly filled one; the way from a
// root to a leaf is a record. Tokens are compared, never hashes, so a hit is always the same text.
// Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/types.hpp"
#include "engine/kv_pages.hpp"

namespace edgellm {

// What a new sequence may take over. copy_source is held until the caller has copied and dropped it.
struct CachePlan {
    PageList shared_pages;         // full pages, read by several sequences
    PageList copy_source;          // at most one page, whose first copy_tokens positions are to be copied
    int32_t copy_tokens = 0;
    int32_t reused_tokens = 0;     // positions covered by both
};

class ContextCache {
public:
    ContextCache(KvPagePool& pool, const ContextCacheConfig& config);
    ~ContextCache();
    ContextCache(const ContextCache&) = delete;
    ContextCache& operator=(const ContextCache&) = delete;

    bool enabled() const { return enabled_; }

    // The longest prefix of the prompt that some record of the domain starts with. The last recompute_tokens
    // positions (at least one) are left to compute, since a sequence needs logits to go on from.
    CachePlan plan(std::string_view domain, std::span<const int32_t> prompt, int32_t recompute_tokens,
                   ContextCacheLookupPolicy policy);

    // Makes tokens findable; pages hold their KV and stay alive while the cache needs them. A page that is
    // still being written beyond tokens.size() may be published: nobody reads past what was published.
    void publish(std::string_view domain, std::span<const int32_t> tokens, std::span<const int32_t> pages);

    // Frees the least recently used page that no sequence holds; false when the cache holds none.
    bool reclaim_page();
    // Frees least recently used pages until at most this many are held by the cache alone.
    void trim(int32_t most_pages);

    ContextCacheMetrics metrics() const;

private:
    struct TokensLess {
        using is_transparent = void;
        bool operator()(std::span<const int32_t> left, std::span<const int32_t> right) const;
    };
    struct Node;
    using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>, TokensLess>;
    struct Match {
        Node* child = nullptr;
        std::size_t tokens = 0;    // that the child shares with what was asked for
    };

    static Match best_match(const Node& parent, std::span<const int32_t> chunk);
    Node* add_child(Node& parent, std::span<const int32_t> chunk, int32_t page);
    bool unlink_leaf(Node* leaf);  // true when its page became free
    bool evict_leaf(Node* leaf);   // the same, counted
    void touch(Node& node);
    bool evict_record(const Node* keep);
    Node* oldest_leaf(bool unused_only, const Node* keep) const;

    KvPagePool& pool_;
    bool enabled_;
    std::size_t max_records_;
    std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
    std::set<std::pair<uint64_t, Node*>> leaves_;  // by last use, oldest first; one per record
    uint64_t clock_ = 0;
    ContextCacheMetrics counters_;
};

}  // namespace edgellm
