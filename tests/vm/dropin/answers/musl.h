/* The names of errors and signals, for which glibc has a function and musl has none. A name that is not here is printed as "?". */
#pragma once

#define NAMED(name) \
	case name: \
		return #name;

static inline const char *strerrorname_np(int error)
{
	switch (error) {
		NAMED(EPERM) NAMED(ENOENT) NAMED(EINTR) NAMED(EIO) NAMED(E2BIG) NAMED(EBADF) NAMED(EAGAIN) NAMED(ENOMEM)
		NAMED(EACCES) NAMED(EFAULT) NAMED(EBUSY) NAMED(EEXIST) NAMED(ENODEV) NAMED(EINVAL) NAMED(EMFILE) NAMED(EFBIG)
		NAMED(ENOSPC) NAMED(ERANGE) NAMED(ENOSYS) NAMED(ENODATA) NAMED(EOVERFLOW) NAMED(EMSGSIZE)
		NAMED(EPROTONOSUPPORT) NAMED(EOPNOTSUPP) NAMED(ETIMEDOUT)
	default:
		return NULL;
	}
}

static inline const char *sigabbrev_np(int number)
{
	switch (number) {
	case SIGSEGV:
		return "SEGV";
	case SIGBUS:
		return "BUS";
	case SIGABRT:
		return "ABRT";
	case SIGILL:
		return "ILL";
	case SIGFPE:
		return "FPE";
	default:
		return "?";
	}
}
