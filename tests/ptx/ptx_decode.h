/* The parser of one function's PTX: names, registers, operands, and what an instruction is.
 * ptx_parse.cc reads a file with it. */
#ifndef PSTI_TESTS_PTX_PTX_DECODE_H
#define PSTI_TESTS_PTX_PTX_DECODE_H

#include <map>

#include "tests/ptx/ptx.h"

namespace ptx_text
{

std::string strip(const std::string &s);
/* At commas that no bracket holds. */
std::vector<std::string> split_operands(const std::string &s);
/* Whether that is one of the words of a mnemonic. */
bool has(const std::vector<std::string> &w, const char *what);

struct function {
    std::string name;
    bool is_kernel = false;
    ptx_kernel body;
    std::vector<std::string> params;
    std::vector<std::pair<size_t, std::string>> calls;
};

/* Shared memory that no one function declares: a kernel has it if it uses it. */
struct variable {
    uint32_t align, bytes;
};

struct parser {
    std::map<std::string, variable> module;
    std::map<std::string, uint64_t> dynamic; /* symbols of extern shared memory */
    function f;
    std::map<std::string, uint32_t> classes, names, labels;
    std::map<std::string, uint64_t> shared;
    std::vector<std::pair<size_t, std::string>> jumps;
    uint32_t next_register = ptx_first_register;
    uint32_t line = 0;
    uint64_t used_bytes = ~(uint64_t)0; /* of the next instruction */

    /* Ends the run: where it stands, too. */
    [[noreturn]] void fail(const std::string &what) const
    {
        ptx_fail(what + " (line " + std::to_string(line) + " of " + f.name + ")");
    }
    bool param_number(const std::string &name, uint32_t *number) const;

    ptx_operand constant(uint64_t value) const
    {
        ptx_operand o;
        o.value = value;
        return o;
    }
    ptx_operand reg(uint32_t number) const
    {
        ptx_operand o;
        o.is_register = true;
        o.reg = number;
        return o;
    }

    ptx_operand operand(const std::string &text);

    std::vector<ptx_operand> operands(const std::string &text);

    void address(ptx_instruction &i, const std::string &text);

    ptx_operand address_operand(const std::string &text);

    void registers(const std::string &directive); /* ".reg .b32 %r<5>" or ".reg .pred p" */

    void pragma(const std::string &directive);

    void place(const std::string &name, const variable &v);

    /* ".shared .align 8 .b8 name[16]" */
    static variable variable_of(const std::string &directive, std::string *name);

    void simple(ptx_instruction &i, ptx_op op, const std::vector<std::string> &o);

    void instruction(std::string text);
    bool memory(ptx_instruction &i, const std::vector<std::string> &w,
                const std::vector<std::string> &o);
    bool asynchronous(ptx_instruction &i, const std::vector<std::string> &w,
                      const std::vector<std::string> &o);
    bool control(ptx_instruction &i, const std::vector<std::string> &w,
                 const std::vector<std::string> &o);
    bool computes_float(ptx_instruction &i, const std::vector<std::string> &w,
                        const std::vector<std::string> &o);
    bool computes(ptx_instruction &i, const std::vector<std::string> &w,
                  const std::vector<std::string> &o, uint32_t num_types);
};

} /* namespace ptx_text */

#endif
