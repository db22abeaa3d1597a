#include "tests/ptx/ptx_decode.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace ptx_text
{

std::string strip(const std::string &s)
{
    const size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
    return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

std::vector<std::string> split_operands(const std::string &s)
{
    std::vector<std::string> found;
    std::string now;
    int depth = 0;
    for (const char c : s) {
        depth += c == '{' || c == '[' || c == '(';
        depth -= c == '}' || c == ']' || c == ')';
        if (c == ',' && depth == 0) {
            found.push_back(strip(now));
            now.clear();
        } else {
            now += c;
        }
    }
    if (!strip(now).empty())
        found.push_back(strip(now));
    return found;
}

static std::vector<std::string> split_at(const std::string &s, char at)
{
    std::vector<std::string> found;
    std::stringstream in(s);
    for (std::string part; std::getline(in, part, at);)
        found.push_back(strip(part));
    return found;
}

static bool type_of(const std::string &word, uint32_t *bits, bool *is_signed)
{
    if (word == "pred") {
        *bits = 1;
        *is_signed = false;
        return true;
    }
    if (word == "f32") { /* bits, where they are only moved; else see computes */
        *bits = 32;
        *is_signed = false;
        return true;
    }
    static const char *const types[] = {"8", "16", "32", "64"};
    for (const char *type : types)
        if (word.size() > 1 && strchr("usb", word[0]) && word.substr(1) == type) {
            *bits = (uint32_t)atoi(type);
            *is_signed = word[0] == 's';
            return true;
        }
    return false;
}

/* f64, f16x2, bf16, b128 and so on, of which there are none. */
static bool looks_like_type(const std::string &word)
{
    const size_t first = word.compare(0, 2, "bf") == 0 ? 1 : 0;
    return word.size() > first + 1 && strchr("usbf", word[first]) &&
           isdigit((unsigned char)word[first + 1]);
}

ptx_operand parser::operand(const std::string &text)
{
    static const std::map<std::string, uint32_t> special = {{"%tid.x", ptx_tid},
                                                            {"%ntid.x", ptx_ntid},
                                                            {"%ctaid.x", ptx_ctaid},
                                                            {"%nctaid.x", ptx_nctaid},
                                                            {"_", ptx_sink}};
    if (special.count(text))
        return reg(special.at(text));
    if (names.count(text))
        return reg(names[text]);
    if (text[0] == '%') {
        size_t n = 1;
        while (n < text.size() && isalpha((unsigned char)text[n]))
            n++;
        const std::string kind = text.substr(0, n);
        char *end;
        const unsigned long number = strtoul(text.c_str() + n, &end, 10);
        if (!classes.count(kind) || n == text.size() || *end) /* an offset, say */
            fail("register " + text);
        return reg(classes[kind] + (uint32_t)number);
    }
    if (text.compare(0, 2, "0f") == 0 && text.size() == 10)
        return constant(strtoull(text.c_str() + 2, nullptr, 16));
    if (isdigit((unsigned char)text[0]) || text[0] == '-') {
        char *end;
        const uint64_t number = text[0] == '-' ? (uint64_t)strtoll(text.c_str(), &end, 0)
                                               : strtoull(text.c_str(), &end, 0);
        if (*end && strcmp(end, "U") != 0)
            fail("number " + text);
        return constant(number);
    }
    if (!shared.count(text) && module.count(text) && f.is_kernel)
        place(text, module[text]);
    if (shared.count(text))
        return constant(shared[text]);
    uint32_t number;
    if (f.is_kernel && param_number(text, &number) && number == 0)
        return reg(ptx_param);
    fail("operand " + text);
}

std::vector<ptx_operand> parser::operands(const std::string &text)
{
    std::vector<ptx_operand> found;
    if (text[0] == '{') {
        for (const std::string &part : split_operands(text.substr(1, text.size() - 2)))
            found.push_back(operand(part));
    } else {
        found.push_back(operand(text));
    }
    return found;
}

void parser::address(ptx_instruction &i, const std::string &text)
{
    if (text.size() < 3 || text[0] != '[')
        fail("address " + text);
    std::string inner = strip(text.substr(1, text.size() - 2));
    const size_t plus = inner.find('+');
    if (plus != std::string::npos) {
        i.offset = strtoll(inner.c_str() + plus + 1, nullptr, 0);
        inner = strip(inner.substr(0, plus));
    }
    i.base = operand(inner);
    i.has_address = true;
}

void parser::registers(const std::string &directive) /* ".reg .b32 %r<5>" or ".reg .pred p" */
{
    const size_t at = directive.find_last_of(" \t");
    const std::string what = strip(directive.substr(at));
    const size_t open = what.find('<');
    if (open == std::string::npos) {
        names[what] = next_register++;
    } else {
        classes[what.substr(0, open)] = next_register;
        next_register += (uint32_t)atoi(what.c_str() + open + 1);
    }
}

void parser::pragma(const std::string &directive)
{
    const size_t at = directive.find("used_bytes_mask");
    if (at != std::string::npos)
        used_bytes = strtoull(directive.c_str() + at + strlen("used_bytes_mask"), nullptr, 0);
}

variable parser::variable_of(const std::string &directive, std::string *name)
{
    const size_t open = directive.find('[');
    const size_t align = directive.find(".align");
    if (open == std::string::npos)
        ptx_fail("shared variable " + directive);
    const size_t first = directive.find_last_of(" \t", open) + 1;
    *name = directive.substr(first, open - first);
    return {align == std::string::npos ? 1 : (uint32_t)atoi(directive.c_str() + align + 6),
            (uint32_t)atoi(directive.c_str() + open + 1)};
}

bool parser::param_number(const std::string &name, uint32_t *number) const
{
    for (uint32_t i = 0; i < f.params.size(); i++)
        if (f.params[i] == name) {
            *number = i;
            return true;
        }
    return false;
}

void parser::place(const std::string &name, const variable &v)
{
    f.body.shared_bytes = (f.body.shared_bytes + v.align - 1) / v.align * v.align;
    shared[name] = f.body.shared_bytes;
    f.body.shared_bytes += v.bytes;
}

ptx_operand parser::address_operand(const std::string &text)
{
    return operand(text[0] == '[' ? strip(text.substr(1, text.size() - 2)) : text);
}

void parser::simple(ptx_instruction &i, ptx_op op, const std::vector<std::string> &o)
{
    i.op = op;
    if (o.empty())
        fail(i.text);
    i.to.push_back(operand(o[0]));
    for (size_t n = 1; n < o.size(); n++)
        i.from.push_back(operand(o[n]));
}

bool has(const std::vector<std::string> &w, const char *what)
{
    for (const std::string &word : w)
        if (word == what)
            return true;
    return false;
}

bool parser::memory(ptx_instruction &i, const std::vector<std::string> &w,
                    const std::vector<std::string> &o)
{
    i.space = has(w, "shared")   ? ptx_space::shared
              : has(w, "global") ? ptx_space::global
              : has(w, "param")  ? ptx_space::param
                                 : ptx_space::generic;
    if (w[0] == "ld" || w[0] == "st") {
        const bool loads = w[0] == "ld";
        const std::string &where = o[loads ? 1 : 0];
        const std::vector<ptx_operand> values = operands(o[loads ? 0 : 1]);
        uint32_t number = 0;
        const std::string name = strip(where.substr(1, where.find_first_of("+]") - 1));
        /* arguments of calls are registers here */
        const bool passes = !loads && sscanf(name.c_str(), "param%u", &number) == 1;
        if (i.space == ptx_space::param &&
            (passes || (!f.is_kernel && param_number(name, &number)))) {
            if (number >= 8 || values.size() != 1)
                fail("argument of a call: " + i.text);
            i.op = ptx_op::mov;
            i.to = {loads ? values[0] : reg(ptx_argument + number)};
            i.from = {loads ? reg(ptx_argument + number) : values[0]};
            return true;
        }
        i.op = loads ? ptx_op::ld : ptx_op::st;
        (loads ? i.to : i.from) = values;
        address(i, where);
        return true;
    }
    if (has(w, "f32") && (w[0] == "atom" || w[0] == "red"))
        return false;
    if (w[0] == "atom") {
        i.op = has(w, "cas")    ? ptx_op::atom_cas
               : has(w, "add")  ? ptx_op::atom_add
               : has(w, "exch") ? ptx_op::atom_exch
               : has(w, "or")   ? ptx_op::atom_or
                                : ptx_op::nothing;
        if (i.op == ptx_op::nothing)
            return false;
        i.to = {operand(o[0])};
        address(i, o[1]);
        for (size_t n = 2; n < o.size(); n++)
            i.from.push_back(operand(o[n]));
        return true;
    }
    if (w[0] == "red") {
        if (!has(w, "or") && !has(w, "add"))
            return false;
        i.op = has(w, "or") ? ptx_op::red_or : ptx_op::red_add;
        address(i, o[0]);
        i.from = {operand(o[1])};
        return true;
    }
    return false;
}

bool parser::asynchronous(ptx_instruction &i, const std::vector<std::string> &w,
                          const std::vector<std::string> &o)
{
    if (w[0] == "mbarrier") {
        i.space = ptx_space::shared;
        i.bits = 64;
        if (has(w, "init")) {
            i.op = ptx_op::mbarrier_init;
            address(i, o[0]);
            i.from = {operand(o[1])};
        } else if (has(w, "try_wait") && has(w, "parity")) {
            i.op = ptx_op::mbarrier_try_wait;
            i.to = {operand(o[0])};
            address(i, o[1]);
            i.from = {operand(o[2])};
        } else if (has(w, "arrive") && has(w, "expect_tx")) {
            i.op = ptx_op::mbarrier_expect;
            address(i, o[1]);
            i.from = {operand(o[2])};
        } else {
            return false;
        }
        return true;
    }
    if (w[0] != "cp")
        return false;
    if (has(w, "commit_group")) {
        i.op = ptx_op::bulk_commit;
    } else if (has(w, "wait_group")) {
        i.op = ptx_op::bulk_wait;
        i.reads_only = has(w, "read");
        i.from = {operand(o[0])};
    } else {
        i.op = has(w, "bulk_group") ? ptx_op::bulk_store : ptx_op::bulk_load;
        for (const std::string &text : o)
            i.from.push_back(address_operand(text));
    }
    return true;
}

bool parser::control(ptx_instruction &i, const std::vector<std::string> &w,
                     const std::vector<std::string> &o)
{
    if (w[0] == "bra") {
        i.op = ptx_op::bra;
        jumps.push_back({f.body.code.size(), o[0]});
    } else if (w[0] == "call") {
        i.op = ptx_op::call;
        if (o.size() != 2)
            fail("a call with a result: " + i.text);
        f.calls.push_back({f.body.code.size(), o[0]});
    } else if (w[0] == "ret" || w[0] == "exit") {
        i.op = ptx_op::ret;
    } else if (w[0] == "bar" && w.size() == 2 && has(w, "sync")) {
        i.op = ptx_op::bar_sync;
        for (const std::string &text : o)
            i.from.push_back(operand(text));
    } else if (w[0] == "bar" && has(w, "warp")) {
        i.op = ptx_op::bar_warp;
        i.from = {operand(o[0])};
    } else if (w[0] == "vote" && has(w, "sync") && o[1][0] != '!') {
        i.op = has(w, "ballot") ? ptx_op::vote_ballot
               : has(w, "any")  ? ptx_op::vote_any
               : has(w, "all")  ? ptx_op::vote_all
                                : ptx_op::nothing;
        i.to = {operand(o[0])};
        i.from = {operand(o[1]), operand(o[2])};
        return i.op != ptx_op::nothing;
    } else if (w[0] == "redux" && has(w, "add")) {
        i.op = ptx_op::redux_add;
        i.to = {operand(o[0])};
        i.from = {operand(o[1]), operand(o[2])};
    } else if (w[0] == "activemask") {
        i.op = ptx_op::activemask;
        i.to = {operand(o[0])};
    } else if (w[0] == "shfl") {
        i.op = ptx_op::shfl;
        i.shuffle = has(w, "up")     ? ptx_shuffle::up
                    : has(w, "bfly") ? ptx_shuffle::bfly
                                     : ptx_shuffle::idx;
        if (i.shuffle == ptx_shuffle::idx && !has(w, "idx"))
            return false;
        for (const std::string &text : split_at(o[0], '|'))
            i.to.push_back(operand(text));
        for (size_t n = 1; n < o.size(); n++)
            i.from.push_back(operand(o[n]));
    } else if (w[0] == "fence" || w[0] == "membar") {
        i.op = ptx_op::fence;
    } else if (w[0] == "nanosleep") {
        i.op = ptx_op::sleep;
        i.from = {operand(o[0])};
    } else if (w[0] == "griddepcontrol") {
        i.op = ptx_op::nothing;
    } else if (w[0] == "createpolicy") {
        i.op = ptx_op::mov;
        i.to = {operand(o[0])};
        i.from = {constant(0x12f0000000000000ull)};
        i.bits = 64;
    } else {
        return false;
    }
    return true;
}

void parser::instruction(std::string text)
{
    ptx_instruction i;
    i.text = text;
    if (text[0] == '@') {
        const size_t space = text.find_first_of(" \t");
        std::string guard = text.substr(1, space - 1);
        i.guard_negated = guard[0] == '!';
        i.guard = (int32_t)operand(i.guard_negated ? guard.substr(1) : guard).reg;
        text = strip(text.substr(space));
    }
    const size_t space = text.find_first_of(" \t\n");
    i.mnemonic = text.substr(0, space);
    const std::vector<std::string> o =
        split_operands(space == std::string::npos ? "" : text.substr(space));
    const std::vector<std::string> w = split_at(i.mnemonic, '.');
    uint32_t num_types = 0;
    for (const std::string &word : w) {
        uint32_t bits;
        bool is_signed;
        if (!type_of(word, &bits, &is_signed)) {
            if (looks_like_type(word))
                fail("unknown: " + i.text);
            continue;
        }
        (num_types ? i.from_bits : i.bits) = bits;
        (num_types ? i.from_signed : i.is_signed) = is_signed;
        num_types++;
    }
    if (!memory(i, w, o) && !asynchronous(i, w, o) && !control(i, w, o) &&
        !computes(i, w, o, num_types))
        fail("unknown: " + i.text);
    i.line = line;
    i.used_bytes = used_bytes;
    used_bytes = ~(uint64_t)0;
    f.body.code.push_back(i);
}

} /* namespace ptx_text */
