#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/ptx/ptx_decode.h"

void ptx_fail(const std::string &what)
{
    fprintf(stderr, "ptx: %s\n", what.c_str());
    fflush(stderr);
    abort();
}

namespace
{

using namespace ptx_text;

uint32_t number_behind(const std::string &text, const char *directive)
{
    const size_t at = text.find(directive);
    return at == std::string::npos ? 0 : (uint32_t)atoi(text.c_str() + at + strlen(directive));
}

/* Comments are gone; statements end with ; and { } : stand by themselves. */
struct reader {
    std::string text;
    size_t at = 0, counted = 0;
    uint32_t lines = 1;

    uint32_t line() /* at which `at` stands */
    {
        for (; counted < at; counted++)
            lines += text[counted] == '\n';
        return lines;
    }
    explicit reader(const std::string &with_comments)
    {
        std::stringstream in(with_comments);
        for (std::string line; std::getline(in, line);)
            text += line.substr(0, line.find("//")) + "\n";
    }
    std::string upto(const char *ends, char *found)
    {
        const size_t end = text.find_first_of(ends, at);
        const std::string part = strip(text.substr(at, end == std::string::npos ? end : end - at));
        *found = end == std::string::npos ? 0 : text[end];
        at = end == std::string::npos ? text.size() : end + 1;
        return part;
    }
};

void finish(function &f, parser &p)
{
    for (const auto &jump : p.jumps) {
        if (!p.labels.count(jump.second))
            p.fail("label " + jump.second);
        f.body.code[jump.first].target = p.labels[jump.second];
    }
    f.body.num_registers = p.next_register;
}

/* One instruction, label, directive or bracket of a body at a time. */
function read_body(reader &in, parser p)
{
    int depth = 1;
    while (depth > 0) {
        while (in.at < in.text.size() && isspace((unsigned char)in.text[in.at]))
            in.at++;
        if (in.at >= in.text.size())
            p.fail("the end");
        const char c = in.text[in.at];
        if (c == '{' || c == '}') {
            depth += c == '{' ? 1 : -1;
            in.at++;
            continue;
        }
        const size_t colon = in.text.find(':', in.at), semicolon = in.text.find(';', in.at);
        const size_t blank = in.text.find_first_of(" \t\n", in.at);
        char end;
        if (c == '$' && colon < blank && colon < semicolon) {
            const std::string label = in.upto(":", &end);
            p.labels[label] = (uint32_t)p.f.body.code.size();
            continue;
        }
        p.line = in.line();
        const std::string statement = in.upto(";", &end);
        if (statement.compare(0, 4, ".reg") == 0)
            p.registers(statement);
        else if (statement.compare(0, 7, ".shared") == 0) {
            std::string name;
            const variable v = parser::variable_of(statement, &name);
            p.place(name, v);
        } else if (statement.compare(0, 7, ".pragma") == 0)
            p.pragma(statement);
        else if (statement.compare(0, 6, ".param") == 0)
            continue;
        else if (statement[0] == '.')
            p.fail("directive " + statement);
        else
            p.instruction(statement);
    }
    finish(p.f, p);
    return p.f;
}

function read_function(reader &in, parser p, const std::string &head, bool is_kernel)
{
    const size_t open = head.find('(');
    const size_t close = head.rfind(')');
    const std::string before = strip(head.substr(0, open));
    p.f.is_kernel = is_kernel;
    p.f.name = before.substr(before.find_last_of(" \t\n") + 1);
    p.f.body.name = p.f.name;
    if (open != std::string::npos)
        for (const std::string &param : split_operands(head.substr(open + 1, close - open - 1))) {
            const std::string name = param.substr(param.find_last_of(" \t") + 1);
            p.f.params.push_back(name.substr(0, name.find('[')));
        }
    const std::string rest = open == std::string::npos ? head : head.substr(close);
    if (const uint32_t threads = number_behind(rest, ".maxntid"))
        p.f.body.max_threads = threads;
    p.f.body.min_blocks = number_behind(rest, ".minnctapersm");
    p.f.body.max_registers = number_behind(rest, ".maxnreg");
    p.shared = p.dynamic;
    return read_body(in, p);
}

/* Appends what the kernel calls. */
void link(function &f, const std::map<std::string, function> &functions)
{
    std::map<std::string, uint32_t> placed;
    for (size_t n = 0; n < f.calls.size(); n++) {
        const std::string callee = f.calls[n].second;
        if (!functions.count(callee))
            ptx_fail("no function " + callee);
        if (!placed.count(callee)) {
            const function &g = functions.at(callee);
            const uint32_t base = (uint32_t)f.body.code.size();
            placed[callee] = base;
            for (ptx_instruction i : g.body.code) {
                i.target += base;
                f.body.code.push_back(i);
            }
            for (const auto &call : g.calls)
                f.calls.push_back({call.first + base, call.second});
        }
        f.body.code[f.calls[n].first].target = placed[callee];
    }
}

} /* namespace */

ptx_program ptx_parse(const std::string &text)
{
    ptx_program program;
    reader in(text);
    parser p;
    std::map<std::string, function> functions;
    std::vector<function> kernels;
    const uint64_t dynamic_mark = 0xd15ea5edd15ea5edull; /* the static size is not known yet */
    program.architecture = number_behind(in.text, ".target sm_");
    in.at = in.text.find(".address_size");
    in.at = in.at == std::string::npos ? 0 : in.text.find('\n', in.at);
    for (;;) {
        char end;
        const std::string head = in.upto("{;", &end);
        if (!end)
            break;
        const bool is_kernel = head.find(".entry") != std::string::npos;
        if (end == ';') {
            std::string name;
            const bool is_dynamic = head.find(".extern .shared") == 0;
            if (!is_dynamic && head.find(".shared") != 0)
                continue; /* a declaration */
            const variable v = parser::variable_of(head, &name);
            if (is_dynamic)
                p.dynamic[name] = dynamic_mark;
            else
                p.module[name] = v;
            continue;
        }
        function f = read_function(in, p, head, is_kernel);
        /* a kernel's registers stand behind those of all functions, which so need no frames */
        if (is_kernel)
            kernels.push_back(f);
        else {
            p.next_register = f.body.num_registers;
            functions[f.name] = f;
        }
    }
    for (function &f : kernels) {
        const uint32_t dynamic = (f.body.shared_bytes + 127) / 128 * 128;
        link(f, functions);
        for (ptx_instruction &i : f.body.code) {
            if (!i.base.is_register && i.base.value == dynamic_mark)
                i.base.value = dynamic;
            for (ptx_operand &o : i.from)
                if (!o.is_register && o.value == dynamic_mark)
                    o.value = dynamic;
        }
        f.body.shared_bytes = dynamic;
        program.kernels.push_back(f.body);
    }
    return program;
}

ptx_program ptx_read(const std::string &path)
{
    std::ifstream in(path);
    std::stringstream text;
    if (!in)
        ptx_fail("cannot read " + path);
    text << in.rdbuf();
    return ptx_parse(text.str());
}

const ptx_kernel &ptx_program::kernel(const std::string &name) const
{
    const std::string mangled = std::to_string(name.size()) + name;
    for (const ptx_kernel &k : kernels)
        if (k.name == name || k.name.find(mangled) != std::string::npos)
            return k;
    ptx_fail("no kernel " + name);
}
