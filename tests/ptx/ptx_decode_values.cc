/* The instructions that compute from registers, as the parser reads them. */
#include "tests/ptx/ptx_decode.h"

namespace ptx_text
{

/* eq, ne and so on; of numbers also those that hold where one is not a number: ltu. */
static bool compare_of(std::string word, bool is_float, ptx_instruction &i)
{
    static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    i.is_float = is_float;
    i.or_unordered = is_float && word.size() == 3 && word[2] == 'u';
    if (i.or_unordered)
        word.pop_back();
    for (int n = 0; n < 6; n++)
        if (word == compares[n]) {
            i.compare = (ptx_compare)n;
            return true;
        }
    return false;
}

/* Of float32, rounded to the nearest. */
bool parser::computes_float(ptx_instruction &i, const std::vector<std::string> &w,
                            const std::vector<std::string> &o)
{
    static const std::map<std::string, ptx_op> plain = {
        {"add", ptx_op::add_f32}, {"sub", ptx_op::sub_f32}, {"mul", ptx_op::mul_f32},
        {"neg", ptx_op::neg_f32}, {"abs", ptx_op::abs_f32}, {"min", ptx_op::min_f32}};
    if (plain.count(w[0]) && w.size() == 2)
        simple(i, plain.at(w[0]), o);
    else if (w[0] == "fma" && w.size() == 3 && has(w, "rn"))
        simple(i, ptx_op::fma_f32, o);
    else
        return false;
    return true;
}

bool parser::computes(ptx_instruction &i, const std::vector<std::string> &w,
                      const std::vector<std::string> &o, uint32_t num_types)
{
    if (w.back() == "f32" && w[0] != "mov" && w[0] != "selp" && w[0] != "setp")
        return computes_float(i, w, o);
    static const std::map<std::string, ptx_op> plain = {
        {"add", ptx_op::add},   {"sub", ptx_op::sub},   {"and", ptx_op::and_},
        {"or", ptx_op::or_},    {"xor", ptx_op::xor_},  {"not", ptx_op::not_},
        {"neg", ptx_op::neg},   {"div", ptx_op::div},   {"rem", ptx_op::rem},
        {"min", ptx_op::min},   {"max", ptx_op::max},   {"shl", ptx_op::shl},
        {"shr", ptx_op::shr},   {"selp", ptx_op::selp}, {"bfi", ptx_op::bfi},
        {"prmt", ptx_op::prmt}, {"bfe", ptx_op::bfe},   {"popc", ptx_op::popc},
        {"clz", ptx_op::clz}};
    if (plain.count(w[0]) && w.size() == 2 && num_types == 1) {
        simple(i, plain.at(w[0]), o);
    } else if (w[0] == "mul" && w.size() == 3) {
        simple(i,
               has(w, "lo")   ? ptx_op::mul_lo
               : has(w, "hi") ? ptx_op::mul_hi
                              : ptx_op::mul_wide,
               o);
        if (i.op == ptx_op::mul_wide && !has(w, "wide"))
            return false;
    } else if (w[0] == "mad" && has(w, "lo") && w.size() == 3) {
        simple(i, ptx_op::mad_lo, o);
    } else if (w[0] == "shf" && w.size() == 4 && i.bits == 32) {
        simple(i, has(w, "l") ? ptx_op::shf_l : ptx_op::shf_r, o);
        i.wraps = has(w, "wrap");
    } else if (w[0] == "cvta") {
        simple(i, ptx_op::mov, o);
    } else if (w[0] == "setp" && w.size() == 3) {
        if (!compare_of(w[1], w[2] == "f32", i))
            return false;
        simple(i, ptx_op::setp, o);
    } else if (w[0] == "cvt" && w.size() == 3 && num_types == 2) {
        simple(i, ptx_op::cvt, o);
    } else if (w[0] == "mov") {
        i.op = o[0][0] == '{' ? ptx_op::unpack : o[1][0] == '{' ? ptx_op::pack : ptx_op::mov;
        i.to = operands(o[0]);
        i.from = operands(o[1]);
    } else {
        return false;
    }
    return true;
}

} /* namespace ptx_text */
