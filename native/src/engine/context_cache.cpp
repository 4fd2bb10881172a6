#include "engine/context_cache.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace edgellm {
namespace {

std::size_t shared_prefix(std::span<const int32_t> left, std::span<const int32_t> right) {
    const auto end = std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first;
    return static_cast<std::size_t>(end - left.begin());
}

}  // namespace

struct ContextCache::Node {
    Node* parent = nullptr;                        // null for a root
    const std::vector<int32_t>* tokens = nullptr;  // this node's key in parent->children
    const std::string* domain = nullptr;           // roots only
    int32_t page = -1;
    uint64_t last_used = 0;
    Children children;

    bool is_leaf() const { return parent != nullptr && children.empty(); }
};

bool ContextCache::TokensLess::operator()(std::span<const int32_t> left, std::span<const int32_t> right) const {
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

ContextCache::ContextCache(KvPagePool& pool, const ContextCacheConfig& config)
    : pool_(pool), enabled_(config.enabled), max_records_(static_cast<std::size_t>(config.max_records)) {}

ContextCache::~ContextCache() {
    while (!leaves_.empty()) unlink_leaf(leaves_.begin()->second);
}

// In lexicographic order the longest common prefix is with one of the two neighbours.
ContextCache::Match ContextCache::best_match(const Node& parent, std::span<const int32_t> chunk) {
    Match best;
    const auto consider = [&](Children::const_iterator child) {
        const std::size_t shared = shared_prefix(child->first, chunk);
        if (shared > best.tokens) best = {child->second.get(), shared};
    };
    const auto next = parent.children.lower_bound(chunk);
    if (next != parent.children.end()) consider(next);
    if (next != parent.children.begin()) consider(std::prev(next));
    return best;
}

CachePlan ContextCache::plan(std::string_view domain, std::span<const int32_t> prompt, int32_t recompute_tokens,
                             ContextCacheLookupPolicy policy) {
    CachePlan plan{PageList(pool_), PageList(pool_), 0, 0};
    if (!enabled_) return plan;
    ++counters_.admitted_sequences;
    if (policy == ContextCacheLookupPolicy::kBypass) {
        ++counters_.lookup_bypass_sequences;
        return plan;
    }
    const auto started = std::chrono::steady_clock::now();
    const auto page_tokens = static_cast<std::size_t>(pool_.page_tokens());

    std::vector<Node*> way;
    std::size_t matched = 0;
    const auto root = roots_.find(domain);
    const Node* node = root == roots_.end() ? nullptr : root->second.get();
    while (node != nullptr && matched < prompt.size()) {
        const Match match = best_match(*node, prompt.subspan(matched, std::min(page_tokens, prompt.size() - matched)));
        if (match.tokens == 0) break;
        way.push_back(match.child);
        matched += match.tokens;
        node = match.tokens == page_tokens ? match.child : nullptr;
    }

    const std::size_t recomputed = static_cast<std::size_t>(std::max(recompute_tokens, 1));
    const std::size_t reusable = prompt.size() > recomputed ? prompt.size() - recomputed : 0;
    const std::size_t reused = std::min(matched, reusable);
    const std::size_t full_pages = reused / page_tokens;
    ++clock_;
    for (std::size_t i = 0; i < full_pages; ++i) {
        touch(*way[i]);
        plan.shared_pages.share(way[i]->page);
    }
    if (reused % page_tokens != 0) {
        touch(*way[full_pages]);
        plan.copy_source.share(way[full_pages]->page);
        plan.copy_tokens = static_cast<int32_t>(reused % page_tokens);
    }
    plan.reused_tokens = static_cast<int32_t>(reused);

    counters_.matched_tokens += static_cast<int64_t>(matched);
    counters_.reused_tokens += static_cast<int64_t>(reused);
    if (reused == 0) {
        ++counters_.no_reusable_prefix_plans;
    } else {
        ++counters_.hit_sequences;
        ++(matched > reusable ? counters_.full_input_rewind_plans : counters_.standard_plans);
    }
    counters_.planning_nanoseconds +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - started).count();
    return plan;
}

void ContextCache::publish(std::string_view domain, std::span<const int32_t> tokens, std::span<const int32_t> pages) {
    if (!enabled_ || tokens.empty()) return;
    ++counters_.publication_attempts;
    ++clock_;
    const auto page_tokens = static_cast<std::size_t>(pool_.page_tokens());

    auto root = roots_.find(domain);
    if (root == roots_.end()) {
        root = roots_.emplace(std::string(domain), std::make_unique<Node>()).first;
        root->second->domain = &root->first;
    }
    Node* node = root->second.get();
    bool added = false;
    for (std::size_t start = 0, page = 0; start < tokens.size(); start += page_tokens, ++page) {
        const auto chunk = tokens.subspan(start, std::min(page_tokens, tokens.size() - start));
        const Match match = best_match(*node, chunk);
        if (match.tokens == chunk.size()) {
            node = match.child;  // already there, perhaps inside a longer page
            touch(*node);
            continue;
        }
        Node* const fresh = add_child(*node, chunk, pages[page]);
        // A partly filled page that this chunk continues has nothing left to tell.
        if (match.child != nullptr && match.tokens == match.child->tokens->size()) unlink_leaf(match.child);
        node = fresh;
        added = true;
    }
    if (!added) {
        ++counters_.existing_publications;
        return;
    }
    ++counters_.committed_publications;
    ++counters_.published_endpoints;
    while (leaves_.size() > max_records_ && evict_record(node)) {
    }
}

bool ContextCache::reclaim_page() {
    while (!leaves_.empty()) {
        Node* leaf = oldest_leaf(true, nullptr);
        // Every leaf is in use: letting go of one frees nothing by itself, yet may bare an unused page above it.
        if (leaf == nullptr) leaf = oldest_leaf(false, nullptr);
        if (evict_leaf(leaf)) return true;
    }
    return false;
}

void ContextCache::trim(int32_t most_pages) {
    while (pool_.kept_alone() > most_pages) {
        Node* const leaf = oldest_leaf(true, nullptr);
        if (leaf == nullptr) return;  // what is left leads to pages in use
        evict_leaf(leaf);
    }
}

ContextCacheMetrics ContextCache::metrics() const {
    ContextCacheMetrics metrics = counters_;
    metrics.current_records = static_cast<int64_t>(leaves_.size());
    metrics.base_kv_pages = {static_cast<int64_t>(pool_.free_pages().size()), pool_.capacity()};
    return metrics;
}

ContextCache::Node* ContextCache::add_child(Node& parent, std::span<const int32_t> chunk, int32_t page) {
    if (parent.is_leaf()) leaves_.erase({parent.last_used, &parent});
    const auto child =
        parent.children.emplace(std::vector<int32_t>(chunk.begin(), chunk.end()), std::make_unique<Node>()).first;
    Node& node = *child->second;
    node.parent = &parent;
    node.tokens = &child->first;
    node.page = page;
    node.last_used = clock_;
    pool_.keep(page);
    leaves_.insert({node.last_used, &node});
    return &node;
}

bool ContextCache::unlink_leaf(Node* leaf) {
    Node* const parent = leaf->parent;
    leaves_.erase({leaf->last_used, leaf});
    const bool freed = pool_.drop(leaf->page);
    parent->children.erase(parent->children.find(std::span<const int32_t>(*leaf->tokens)));
    if (parent->is_leaf()) leaves_.insert({parent->last_used, parent});
    if (parent->parent == nullptr && parent->children.empty()) roots_.erase(roots_.find(*parent->domain));
    return freed;
}

bool ContextCache::evict_leaf(Node* leaf) {
    const bool partly_filled = leaf->tokens->size() < static_cast<std::size_t>(pool_.page_tokens());
    const std::size_t records_before = leaves_.size();
    const bool freed = unlink_leaf(leaf);
    if (leaves_.size() < records_before) ++counters_.evicted_records;
    if (freed) ++counters_.reclaimed_base_kv_pages;
    if (freed && partly_filled) ++counters_.reclaimed_partial_kv_snapshots;
    return freed;
}

void ContextCache::touch(Node& node) {
    const bool leaf = node.is_leaf();
    if (leaf) leaves_.erase({node.last_used, &node});
    node.last_used = clock_;
    if (leaf) leaves_.insert({node.last_used, &node});
}

// Removes the oldest record with all pages that only it leads to.
bool ContextCache::evict_record(const Node* keep) {
    Node* leaf = oldest_leaf(true, keep);
    if (leaf == nullptr) leaf = oldest_leaf(false, keep);
    if (leaf == nullptr) return false;
    while (leaf != nullptr) {
        Node* const parent = leaf->parent;
        const bool last_child = parent->parent != nullptr && parent->children.size() == 1;
        if (unlink_leaf(leaf)) ++counters_.reclaimed_base_kv_pages;
        leaf = last_child ? parent : nullptr;
    }
    ++counters_.evicted_records;
    return true;
}

ContextCache::Node* ContextCache::oldest_leaf(bool unused_only, const Node* keep) const {
    for (const auto& [last_used, leaf] : leaves_) {
        if (leaf != keep && (!unused_only || pool_.holders(leaf->page) == 1)) return leaf;
    }
    return nullptr;
}

}  // namespace edgellm
