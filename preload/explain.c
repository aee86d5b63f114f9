/*
 * What the user at the terminal is told: reasons of which a program sees an error number
 * only. ROCED_EXPLAIN=1, which rocectl exec and env set, asks for it. That there is no daemon is
 * told unless ROCED_EXPLAIN=0 forbids it: who has preloaded the library without rocectl needs it most.
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

/* What standard error was when the program began: something else may have its number later. */
static struct stat terminal;

__attribute__((constructor)) static void begin(void)
{
	if (fstat(STDERR_FILENO, &terminal) != 0)
		terminal.st_ino = 0;
}

static bool same_terminal(void)
{
	struct stat st;
	return terminal.st_ino && fstat(STDERR_FILENO, &st) == 0 && st.st_ino == terminal.st_ino &&
	       st.st_dev == terminal.st_dev;
}

/* news reports whether a sentence has not been said before, as far as there is room to
 * remember; when there is none, nothing is. */
static bool news(const char *sentence)
{
	static _Atomic uint64_t said[SENTENCES];
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (const char *p = sentence; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 1099511628211u;
	for (int i = 0; i < SENTENCES; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&said[i], &none, hash))
			return true;
		if (none == hash)
			return false;
	}
	return false;
}

static void say(const char *format, va_list v)
{
	char line[LENGTH];
	if (!same_terminal())
		return;
	int n = vsnprintf(line, sizeof line - 1, format, v);
	if (n < 0 || !news(line))
		return;
	n = strlen(line);
	line[n++] = '\n';
	syscall(SYS_write, STDERR_FILENO, line, n);
}

void explain(const char *format, ...)
{
	const char *wish = getenv("ROCED_EXPLAIN");
	KEEP_ERRNO;
	if (!wish || strcmp(wish, "1") != 0)
		return;
	va_list v;
	va_start(v, format);
	say(format, v);
	va_end(v);
}

void advise(const char *format, ...)
{
	static atomic_flag advised = ATOMIC_FLAG_INIT;
	const char *wish = getenv("ROCED_EXPLAIN");
	KEEP_ERRNO;
	if ((wish && !strcmp(wish, "0")) || atomic_flag_test_and_set(&advised))
		return;
	va_list v;
	va_start(v, format);
	say(format, v);
	va_end(v);
}
