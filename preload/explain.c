/*
 * Messages for the user at the terminal: the reason behind an error number. ROCED_EXPLAIN=1
 * enables them; rocectl exec and env set it. The advice about a missing daemon is printed
 * unless ROCED_EXPLAIN=0, because it helps users who preload the library without rocectl.
 */
#include "process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SENTENCES = 16, LENGTH = 1200 };

/* Standard error at the start of the program. Another file may have its number later. */
static struct stat first_stderr;

__attribute__((constructor)) static void begin(void)
{
	if (fstat(STDERR_FILENO, &first_stderr) != 0)
		first_stderr.st_ino = 0;
}

static bool stderr_unchanged(void)
{
	struct stat st;
	return first_stderr.st_ino && fstat(STDERR_FILENO, &st) == 0 && st.st_ino == first_stderr.st_ino &&
	       st.st_dev == first_stderr.st_dev;
}

/* is_new returns true for a sentence that was not printed before. It returns false when the
 * table is full. */
static bool is_new(const char *sentence)
{
	static _Atomic uint64_t printed[SENTENCES];
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (const char *p = sentence; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 1099511628211u;
	for (int i = 0; i < SENTENCES; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&printed[i], &none, hash))
			return true;
		if (none == hash)
			return false;
	}
	return false;
}

static void print_line(const char *format, va_list v)
{
	char line[LENGTH];
	if (!stderr_unchanged())
		return;
	int n = vsnprintf(line, sizeof line - 1, format, v);
	if (n < 0 || !is_new(line))
		return;
	n = strlen(line);
	line[n++] = '\n';
	syscall(SYS_write, STDERR_FILENO, line, n);
}

void explain(const char *format, ...)
{
	const char *setting = getenv("ROCED_EXPLAIN");
	KEEP_ERRNO;
	if (!setting || strcmp(setting, "1") != 0)
		return;
	va_list v;
	va_start(v, format);
	print_line(format, v);
	va_end(v);
}

void advise(const char *format, ...)
{
	static atomic_flag advised = ATOMIC_FLAG_INIT;
	const char *setting = getenv("ROCED_EXPLAIN");
	KEEP_ERRNO;
	if ((setting && !strcmp(setting, "0")) || atomic_flag_test_and_set(&advised))
		return;
	va_list v;
	va_start(v, format);
	print_line(format, v);
	va_end(v);
}
