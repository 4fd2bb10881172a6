// The executors compute what plain loops compute, for every family, encoding and KV type, and refuse broken steps.
#include "contract/errors.hpp"
#include "executor/cpu/cpu_executor.hpp"
#include "executor/kernels/matmul.hpp"
#include "executor_harness.hpp"

using namespace harness;
using edgellm::ExecutorError;
using edgellm::InvalidRequest;
using edgellm::TensorType;

namespace {

std::vector<tiny::Shape> family_shapes() {
    std::vector<tiny::Shape> shapes;
    const auto add = [&](const char* architecture, auto change) {
        tiny::Shape shape;
        shape.architecture = architecture;
        shape.seed = static_cast<uint32_t>(shapes.size()) + 1;
        change(shape);
        shapes.push_back(shape);
    };
    add("llama", [](tiny::Shape&) {});
    add("llama", [](tiny::Shape& s) {
        s.tied = false;
        s.kv_heads = 4;
    });
    add("llama", [](tiny::Shape& s) {
        s.rope_freq_factors = {1, 1, 1.5F, 2, 3, 5, 8, 8};
        s.rope_base = 500000.0F;
    });
    add("llama", [](tiny::Shape& s) {
        s.rope_factor = 4.0F;
        s.heads = 6;
        s.kv_heads = 1;
        s.hidden = 96;
    });
    add("llama", [](tiny::Shape& s) {
        s.heads = 14;
        s.kv_heads = 1;
        s.head_size = 20;
    });  // more heads than a task takes
    add("qwen2", [](tiny::Shape& s) {
        s.heads = 7;
        s.kv_heads = 1;
        s.hidden = 112;
    });
    add("qwen3", [](tiny::Shape& s) {
        s.head_size = 32;
        s.tied = false;
    });
    add("qwen3", [](tiny::Shape& s) {
        s.head_size = 6;
        s.rope_base = 1e6F;
    });  // no whole vector fits a head
    return shapes;
}

double difference_from_reference(const tiny::Shape& shape, const ExecutorOptions& options,
                                 std::size_t token_count = 75) {
    const tiny::Decoder decoder(shape);
    const Model model(decoder);
    const auto executor = model.executor(options);
    Sequence one = sequence(tiny::random_tokens(token_count, shape.vocab, 5), options.kv_page_tokens, 3);
    return largest_difference(run_whole(*executor, one), decoder.reference(one.tokens).logits);
}

}  // namespace

// Logits of these decoders lie within about ±6.
TEST(every_family_matches_plain_loops) {
    for (const tiny::Shape& shape : family_shapes()) CHECK(difference_from_reference(shape, small_options()) < 2e-4);
}

TEST(every_family_matches_plain_loops_on_the_librarys_operators) {
    ExecutorOptions options = small_options();
    options.portable_attention = true;
    for (const tiny::Shape& shape : family_shapes()) CHECK(difference_from_reference(shape, options) < 2e-4);
}

TEST(every_family_matches_plain_loops_with_portable_kernels) {
    for (const tiny::Shape& shape : family_shapes()) {
        const tiny::Decoder decoder(shape);
        const Model model(decoder);
        const auto executor = edgellm::make_cpu_executor(model.file, model.spec, small_options(), true);
        Sequence one = sequence(tiny::random_tokens(75, shape.vocab, 5), 8, 3);
        CHECK(largest_difference(run_whole(*executor, one), decoder.reference(one.tokens).logits) < 2e-4);
    }
}

TEST(half_precision_keys_and_values_stay_close) {
    for (const bool portable : {false, true}) {
        ExecutorOptions options = small_options(KvType::kF16);
        options.portable_attention = portable;
        CHECK(difference_from_reference(tiny::Shape{}, options) < 2e-2);
    }
}

// 16-bit activations leave almost nothing of the error that 8-bit ones cause.
TEST(own_kernels_read_weights_of_eight_bits_and_more_precisely) {
    for (const TensorType type : {TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}) {
        tiny::Shape shape;
        shape.type = type;
        const bool has_own_kernels = edgellm::find_own_matmul_kernel(type) != nullptr;
        CHECK(difference_from_reference(shape, small_options()) < (has_own_kernels ? 2e-3 : 0.8));
    }
}

// Beside weights of 4 bits activations have 8. test_panel_kernels has the kernels' exact reference.
TEST(weights_of_four_bits_stay_near_the_reference) {
    for (const TensorType type : {TensorType::kQ4_1, TensorType::kQ4_0}) {
        tiny::Shape shape;
        shape.type = type;
        CHECK(difference_from_reference(shape, small_options()) < 0.8);
    }
}

TEST(other_encodings_run_on_the_librarys_dot_products) {
    for (const TensorType type : {TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ2_K, TensorType::kQ3_K,
                                  TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K}) {
        tiny::Shape shape;
        shape.type = type;
        shape.hidden = 256;
        shape.heads = 8;
        shape.head_size = 32;
        shape.intermediate = 512;
        CHECK(difference_from_reference(shape, small_options(), 20) < 0.8);
    }
}

TEST(hidden_rows_are_after_the_final_norm) {
    for (const bool portable : {false, true}) {
        ExecutorOptions options = small_options();
        options.portable_attention = portable;
        const tiny::Decoder decoder{tiny::Shape{}};
        const auto executor = Model(decoder).executor(options);
        Sequence one = sequence(tiny::random_tokens(20, 101, 5), 8, 0);
        const auto hidden = step(*executor, {one.next(20, RowsWanted::kAll)}, OutputKind::kHidden);
        CHECK(largest_difference(hidden, decoder.reference(one.tokens).hidden) < 2e-4);
    }
}

TEST(only_wanted_rows_come_out_in_order) {
    for (const bool portable : {false, true}) {
        ExecutorOptions options = small_options();
        options.portable_attention = portable;
        const tiny::Decoder decoder{tiny::Shape{}};
        const auto executor = Model(decoder).executor(options);
        std::vector<Sequence> all;
        for (uint32_t i = 0; i < 3; ++i)
            all.push_back(sequence(tiny::random_tokens(12, 101, 20 + i), 8, static_cast<int32_t>(i) * 4));
        const auto out = step(*executor, {all[0].next(12, RowsWanted::kLast), all[1].next(12, RowsWanted::kNone),
                                          all[2].next(12, RowsWanted::kAll)});
        CHECK(out.size() == 13 * 101);
        const auto first = decoder.reference(all[0].tokens).logits;
        CHECK(largest_difference(row(out, 0, 101), row(first, 11, 101)) < 2e-4);
        const auto third = decoder.reference(all[2].tokens).logits;
        CHECK(largest_difference(std::span(out).subspan(101), third) < 2e-4);
        // A step that wants nothing still writes its keys and values.
        Sequence quiet = sequence(tiny::random_tokens(12, 101, 30), 8, 20);
        CHECK(step(*executor, {quiet.next(11, RowsWanted::kNone)}).empty());
        const auto last = step(*executor, {quiet.next(1, RowsWanted::kLast)});
        CHECK(largest_difference(last, row(decoder.reference(quiet.tokens).logits, 11, 101)) < 2e-4);
    }
}

TEST(executors_agree_on_a_long_context) {
    tiny::Shape shape;
    shape.type = TensorType::kF32;
    const tiny::Decoder decoder(shape);
    const Model model(decoder);
    ExecutorOptions options = small_options(KvType::kF16);
    const auto own = model.executor(options);
    options.portable_attention = true;
    const auto portable = model.executor(options);
    Sequence one = sequence(tiny::random_tokens(250, 101, 5), 8, 40);
    Sequence same = one;
    CHECK(largest_difference(run_whole(*own, one), run_whole(*portable, same)) < 2e-3);
}

TEST(copied_pages_continue_like_the_original) {
    for (const KvType type : {KvType::kF16, KvType::kF32}) {
        for (const bool portable : {false, true}) {
            ExecutorOptions options = small_options(type);
            options.portable_attention = portable;
            const auto executor = Model(tiny::Decoder{tiny::Shape{}}).executor(options);
            Sequence original = sequence(tiny::random_tokens(30, 101, 5), 8, 0);
            (void)step(*executor, {original.next(29, RowsWanted::kNone)});
            // Positions 0 to 20 shared as copies: two whole pages and five positions of the third.
            Sequence copy = sequence(original.tokens, 8, 50);
            executor->copy_kv(0, 50, 8);
            executor->copy_kv(1, 51, 8);
            executor->copy_kv(2, 52, 5);
            copy.done = 21;
            (void)step(*executor, {copy.next(8, RowsWanted::kNone)});
            const auto expected = step(*executor, {original.next(1, RowsWanted::kLast)});
            const auto actual = step(*executor, {copy.next(1, RowsWanted::kLast)});
            CHECK(portable ? largest_difference(expected, actual) < 1e-5 : identical(expected, actual));
        }
    }
}

TEST(copying_leaves_later_positions_alone) {
    const auto executor = Model(tiny::Decoder{tiny::Shape{}}).executor(small_options());
    Sequence one = sequence(tiny::random_tokens(8, 101, 5), 8, 0);
    (void)step(*executor, {one.next(7, RowsWanted::kNone)});
    const auto expected = step(*executor, {one.next(1, RowsWanted::kLast)});
    Sequence other = sequence(one.tokens, 8, 1);
    (void)step(*executor, {other.next(8, RowsWanted::kNone)});
    executor->copy_kv(0, 1, 3);  // the same values: nothing may change
    other.done = 7;
    CHECK(identical(step(*executor, {other.next(1, RowsWanted::kLast)}), expected));
}

TEST(free_pages_may_be_given_back_while_others_live) {
    const auto executor = Model(tiny::Decoder{tiny::Shape{}}).executor(small_options());
    Sequence kept = sequence(tiny::random_tokens(30, 101, 5), 8, 0);
    Sequence gone = sequence(tiny::random_tokens(30, 101, 6), 8, 10);
    (void)step(*executor, {kept.next(29, RowsWanted::kNone), gone.next(29, RowsWanted::kNone)});
    executor->idle(gone.pages);
    executor->idle(gone.pages);
    Sequence fresh = sequence(kept.tokens, 8, 60);
    const auto expected = step(*executor, {fresh.next(30, RowsWanted::kLast)});
    CHECK(identical(step(*executor, {kept.next(1, RowsWanted::kLast)}), expected));
    gone.rewind();
    CHECK(step(*executor, {gone.next(30, RowsWanted::kLast)}).size() == 101);
}

TEST(describes_itself) {
    const tiny::Shape shape;
    const auto executor = Model(tiny::Decoder{shape}).executor(small_options(KvType::kF16));
    const auto& info = executor->info();
    CHECK(info.name == "fused" && !info.device.empty() && !info.reason.empty() && info.threads == 2);
    CHECK(info.vocab_size == 101 && info.hidden_size == 64 && info.kv_page_tokens == 8 && info.kv_page_count == 96 &&
          info.max_rows == 256);
    CHECK(info.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2);  // keys and values, layers, KV heads, head size, bytes
    CHECK(info.weight_bytes > 101 * 64 * 4);
}

TEST(refuses_options_by_name) {
    const Model model(tiny::Decoder{tiny::Shape{}});
    const auto refused = [&](auto change, const char* text) {
        ExecutorOptions options = small_options();
        change(options);
        CHECK_THROWS(model.executor(options), InvalidRequest, text);
    };
    refused([](ExecutorOptions& o) { o.executor = "tensorrt"; },
            "executor 'tensorrt' is unknown; the allowed ones are auto, fused, ggml");
    refused([](ExecutorOptions& o) { o.threads = -1; }, "threads is -1");
    refused([](ExecutorOptions& o) { o.threads = 100000; }, "threads is 100000");
    refused([](ExecutorOptions& o) { o.kv_page_tokens = 12; }, "kv_page_tokens is 12");
    refused([](ExecutorOptions& o) { o.kv_page_tokens = 0; }, "kv_page_tokens is 0");
    refused([](ExecutorOptions& o) { o.kv_page_count = 0; }, "kv_page_count is 0");
    refused([](ExecutorOptions& o) { o.max_rows = 0; }, "max_rows is 0");
    ExecutorOptions options = small_options();
    options.threads = 0;
    CHECK(model.executor(options)->info().threads >= 1);
    for (const char* name : {"fused", "ggml"}) {
        options.executor = name;
        CHECK(model.executor(options)->info().name == name && model.executor(options)->info().reason == "asked for");
    }
    options.executor = "auto";
    options.portable_attention = true;
    CHECK(model.executor(options)->info().name == "ggml");
    CHECK(model.executor(options)->info().reason == "portable_attention needs its operators");
    options.portable_attention = false;
    const auto chosen = model.executor(options);  // of the tests' build of ggml, which knows CPUs alone
    CHECK(chosen->info().name == "fused");
    CHECK(chosen->info().reason == "the fastest on a CPU without an accelerator");
    CHECK(!chosen->info().device.empty());
    refused(
        [](ExecutorOptions& o) {
            o.executor = "fused";
            o.portable_attention = true;
        },
        "executor 'fused' has its own attention");
}

TEST(refuses_steps_that_break_the_contract) {
    for (const bool portable : {false, true}) {
        ExecutorOptions options = small_options();
        options.portable_attention = portable;
        options.max_rows = 16;
        const auto executor = Model(tiny::Decoder{tiny::Shape{}}).executor(options);
        const std::vector<int32_t> tokens = tiny::random_tokens(17, 101, 5);
        const std::vector<int32_t> pages = {0, 1, 2};
        const auto refused = [&](const std::vector<RowGroup>& groups, const char* text) {
            CHECK_THROWS(step(*executor, groups), ExecutorError, text);
        };
        const auto few = std::span(tokens).first(4);
        refused({{{}, 0, pages, RowsWanted::kLast}}, "no tokens");
        refused({{tokens, 0, pages, RowsWanted::kLast}}, "more than 16 rows");
        refused({{few, -1, pages, RowsWanted::kLast}}, "position -1");
        refused({{few, INT32_MAX - 2, pages, RowsWanted::kLast}}, "out of range");
        refused({{few, 21, pages, RowsWanted::kLast}}, "3 pages do not cover 25 positions");
        const std::vector<int32_t> outside = {96};
        refused({{few, 0, outside, RowsWanted::kLast}}, "page 96 is outside");
        const std::vector<int32_t> alien = {101};
        refused({{alien, 0, pages, RowsWanted::kLast}}, "token id 101");
        refused({{few, 0, pages, RowsWanted::kLast}, {few, 0, pages, RowsWanted::kLast}}, "written twice");
        std::vector<float> small(100);
        const std::vector<RowGroup> groups = {{few, 0, pages, RowsWanted::kLast}};
        CHECK_THROWS((executor->step(groups, OutputKind::kLogits, small), 0), ExecutorError, "output holds 100 values");
        CHECK_THROWS((executor->copy_kv(0, 96, 1), 0), ExecutorError, "page 96");
        CHECK_THROWS((executor->copy_kv(-1, 0, 1), 0), ExecutorError, "page -1");
        CHECK_THROWS((executor->copy_kv(0, 1, 9), 0), ExecutorError, "9 positions");
        executor->step({}, OutputKind::kLogits, {});                                 // nothing to do is no error
        CHECK(step(*executor, {{few, 0, pages, RowsWanted::kLast}}).size() == 101);  // and it still works
    }
}

CHECK_MAIN()
