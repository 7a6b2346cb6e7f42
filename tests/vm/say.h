/* What a step came to, as text, and the control line of a virtual card. For programs that play steps: alike/theirs.c and random/voice.c. */
#pragma once
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char result[8192];
static FILE *control, *answers;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	size_t len = strlen(result);
	va_list list;

	va_start(list, format);
	vsnprintf(result + len, sizeof(result) - len, format, list);
	va_end(list);
}

/* Whether the control line is there. */
static int has_control(const char *path)
{
	control = fopen(path, "w"), answers = control ? fopen(path, "r") : NULL;
	if (!answers)
		perror(path);
	return answers != NULL;
}

/* A request, and lines up to `ok`, which are printed behind the prefix if there is one. */
static void ask(const char *request, const char *prefix)
{
	static char *line;
	static size_t room;

	if (fprintf(control, "%s\n", request) < 0 || fflush(control)) {
		perror("control line");
		exit(2);
	}
	while (getline(&line, &room, answers) > 0) {
		if (!strcmp(line, "ok\n"))
			return;
		if (!strncmp(line, "error", 5))
			break;
		if (prefix)
			printf("%s%s", prefix, line);
	}
	fprintf(stderr, "control line: %.80s: %s\n", request, line ? line : "nothing");
	exit(2);
}
