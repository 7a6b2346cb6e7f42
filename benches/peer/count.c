// A plugin for QEMU that counts the guest's instructions, of user space and of the kernel apart, and system calls,
// between the marks of mark.h. Time spent idle costs nothing. For guests of one x86-64 processor.
//
//     qemu-system-x86_64 -plugin count.so,out=FILE ...    each mark a line: NUMBER USER KERNEL CALLS
//
// The declarations are those of QEMU's plugin interface, version 7, that are used here: it is in no package.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct qemu_info;
struct scoreboard;
struct block;
struct instruction;
struct place {
    struct scoreboard *board;
    size_t offset;
};
enum { ADD = 0, NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(struct block *block, void *data), void *data);
struct scoreboard *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_get(struct place place, unsigned int cpu);
size_t qemu_plugin_tb_n_insns(const struct block *block);
struct instruction *qemu_plugin_tb_get_insn(const struct block *block, size_t index);
size_t qemu_plugin_insn_data(const struct instruction *instruction, void *bytes, size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *instruction);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct instruction *instruction, int operation,
                                                         struct place place, uint64_t number);
void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction *instruction, void (*executed)(unsigned int, void *),
                                            int flags, void *data);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int qemu_plugin_version = 7;

static const uint64_t MAGIC = UINT64_C(0x7576626d61726b00);

enum { USER, KERNEL, CALLS, COUNTS };

static struct place counts[COUNTS];
static FILE *out;

static void marked(unsigned int cpu, void *number)
{
    fprintf(out, "%lu", (unsigned long)(uintptr_t)number);
    for (int i = 0; i < COUNTS; i++)
        fprintf(out, " %lu", (unsigned long)qemu_plugin_u64_get(counts[i], cpu));
    fputc('\n', out);
    fflush(out);
}

static void translated(struct block *block, void *data)
{
    (void)data;
    size_t number = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < number; i++) {
        struct instruction *instruction = qemu_plugin_tb_get_insn(block, i);
        bool kernel = qemu_plugin_insn_vaddr(instruction) >> 63;
        uint8_t bytes[16];
        size_t size = qemu_plugin_insn_data(instruction, bytes, sizeof bytes);
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ADD, counts[kernel ? KERNEL : USER], 1);
        if (kernel)
            continue;
        if (size == 2 && bytes[0] == 0x0f && bytes[1] == 0x05) // SYSCALL
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ADD, counts[CALLS], 1);
        uint64_t value;
        if (size != 2 + sizeof value) // MOV of eight bytes to a register
            continue;
        memcpy(&value, bytes + 2, sizeof value);
        if ((value & ~UINT64_C(0xff)) == MAGIC)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, (void *)(uintptr_t)(value & 0xff));
    }
}

PUBLIC int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "w"))) {
        fprintf(stderr, "count: out=FILE is needed, and must be writable\n");
        return 1;
    }
    struct scoreboard *board = qemu_plugin_scoreboard_new(COUNTS * sizeof(uint64_t));
    for (int i = 0; i < COUNTS; i++)
        counts[i] = (struct place){ board, i * sizeof(uint64_t) };
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
    return 0;
}
