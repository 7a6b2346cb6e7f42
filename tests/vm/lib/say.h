/*
 * The result of a step as text, and the control line of a virtual card. For programs that run steps: alike/theirs.c and
 * random/voice.c.
 */
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

/* Whether there is a control line. */
static int has_control(const char *path)
{
	control = fopen(path, "w"), answers = control ? fopen(path, "r") : NULL;
	if (!answers)
		perror(path);
	return answers != NULL;
}

/* Sends a request, and reads lines up to `ok`. If there is a prefix they are printed after it. */
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
