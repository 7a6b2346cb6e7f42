/*
 * Devices and lists of them. A device has the same ibv_device in every list, for as long as the device exists.
 *
 * usage: devices DEVICE, with no other device in the machine; makes and removes two
 */
#include "robust.h"
#include <malloc.h>

#define SAYS(name, ...) \
	do { \
		printf("%s: ", name); \
		printf(__VA_ARGS__); \
		putchar('\n'); \
	} while (0)

static int count;

static struct ibv_device **get(void)
{
	struct ibv_device **list = ibv_get_device_list(&count);

	MUST(list);
	return list;
}

static void say_list(const char *name)
{
	struct ibv_device **list = get();

	printf("%s: %d:", name, count);
	for (int i = 0; i < count; i++)
		printf(" %s", ibv_get_device_name(list[i]));
	printf("%s\n", list[count] ? ", and no end" : "");
	ibv_free_device_list(list);
}

static struct ibv_device *of_list(struct ibv_device **list, const char *name)
{
	for (; *list; list++)
		if (!strcmp(ibv_get_device_name(*list), name))
			return *list;
	return NULL;
}

/* The device that now has this name; it may be gone afterwards. */
static struct ibv_device *now(const char *name)
{
	struct ibv_device **list = get(), *device = of_list(list, name);

	ibv_free_device_list(list);
	return device;
}

static void one_pointer(void)
{
	struct ibv_device **first = get(), **second = get(), *device = of_list(first, device_name);
	struct ibv_context *one, *other;

	MUST(device);
	SAYS("in two lists", "%d", of_list(second, device_name) == device);
	ibv_free_device_list(first);
	SAYS("when one is freed", "%d", now(device_name) == device);
	ibv_free_device_list(second);
	SAYS("when all are freed", "%d", now(device_name) == device);
	MUST(one = ibv_open_device(device));
	MUST(other = open_device());
	SAYS("of contexts", "%d %d", one->device == device, other->device == device);
	MUST(!ibv_close_device(one));
	SAYS("name by an open context", "%s", ibv_get_device_name(other->device));
	MUST(!ibv_close_device(other));
	SAYS("when all are closed", "%d", now(device_name) == device);
}

/* librdmacm sorts the lists that it gets. */
static void turned_round(void)
{
	struct ibv_device **list = get(), *last = list[count - 1];

	list[count - 1] = list[0];
	list[0] = last;
	ibv_free_device_list(list);
	SAYS("after a list was turned round", "%d", now(ibv_get_device_name(last)) == last);
}

static void *many(void *wanted)
{
	long same = 0;

	for (int i = 0; i < 50; i++)
		same += now(device_name) == wanted;
	return (void *)same;
}

static void of_threads(void)
{
	struct ibv_device *device = now(device_name);
	pthread_t threads[8];
	long same = 0;

	for (int i = 0; i < 8; i++)
		MUST(!pthread_create(&threads[i], NULL, many, device));
	for (int i = 0; i < 8; i++) {
		void *found;

		MUST(!pthread_join(threads[i], &found));
		same += (long)found;
	}
	SAYS("of eight threads", "%ld", same);
}

static void of_a_child(void)
{
	struct ibv_device *device = now(device_name);
	int status;
	pid_t child;

	fflush(stdout);
	MUST((child = fork()) >= 0);
	if (!child) {
		struct ibv_context *context;

		alarm(20);
		SAYS("in a child", "%d", now(device_name) == device);
		OBJECT("opened in a child", context = ibv_open_device(device));
		if (context)
			NUMBER("closed in a child", ibv_close_device(context));
		fflush(stdout);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child);
	SAYS("the child's end", "%d", status);
}

/* Used memory in bytes. musl does not tell, so with musl the process's pages are counted. */
static size_t used(void)
{
#ifdef __GLIBC__
	return mallinfo2().uordblks;
#else
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages;

	MUST(file && fscanf(file, "%*u %*u %*u %*u %*u %zu", &pages) == 1 && !fclose(file));
	return pages * sysconf(_SC_PAGESIZE);
#endif
}

static void memory(void)
{
	size_t before;

	/* musl takes new pages for a while before it uses old ones again. */
	for (int i = 0; i < 200; i++)
		ibv_free_device_list(get());
	before = used();
	for (int i = 0; i < 200; i++)
		ibv_free_device_list(get());
	SAYS("memory that lists leave", "%zd", (ssize_t)(used() - before));
}

static void run(const char *command)
{
	asked = command;
	MUST(!system(command));
	asked = "the program";
}

#define ADD "rdma link add rxe7 type rxe netdev dummy7 && until [ -e /dev/infiniband/uverbs1 ]; do sleep 0.1; done"

static void come_and_go(void)
{
	struct ibv_device **held, *device = now(device_name), *second;
	struct ibv_context *context;
	int index;

	run("ip link add dummy7 address 52:54:00:00:00:07 type dummy && ip link set dummy7 up");
	run(ADD);
	say_list("with a second");
	held = get();
	MUST(second = of_list(held, "rxe7"));
	SAYS("the first is the same", "%d", now(device_name) == device);
	SAYS("the second is the same", "%d", now("rxe7") == second);
	turned_round();
	index = ibv_get_device_index(second);
	SAYS("its GUID", "%016llx", (unsigned long long)be64toh(ibv_get_device_guid(second)));

	run("rdma dev set rxe7 name rxe8");
	say_list("with another name");
	SAYS("renamed, it is the same", "%d", now("rxe7") == second || now("rxe8") == second);
	OBJECT("renamed, it is opened", context = ibv_open_device(second));
	if (context)
		NUMBER("renamed, it is closed", ibv_close_device(context));
	run("rdma dev set rxe8 name rxe7");

	run("mv /dev/infiniband/uverbs1 /dev/infiniband/away");
	say_list("without its file");
	run("mv /dev/infiniband/away /dev/infiniband/uverbs1");
	say_list("with its file again");

	/* With a context open the kernel would wait for it to close: rxe cannot take a device away from its users. */
	run("rdma link delete rxe7");
	say_list("when it has gone");
	SAYS("gone, its name", "%s", ibv_get_device_name(second));
	SAYS("gone, its index", "%d", ibv_get_device_index(second) == index);
	OBJECT("gone, it is opened", ibv_open_device(second));
	ibv_free_device_list(held);

	held = get();
	run(ADD);
	say_list("when it has come back");
	MUST(second = now("rxe7"));
	SAYS("back, the first is the same", "%d", now(device_name) == device && of_list(held, device_name) == device);
	ibv_free_device_list(held);
	held = get();
	run("rdma link delete rxe7 && " ADD);
	SAYS("back at once, it is the same", "%d", now("rxe7") == second);
	ibv_free_device_list(held);
	run("rdma link delete rxe7 && ip link delete dummy7");
	say_list("at the end");
}

static void without(void)
{
	struct ibv_device **list;

	OBJECT("without a place for the count", list = ibv_get_device_list(NULL));
	if (list)
		ibv_free_device_list(list);
}

int main(int arguments, char **argument)
{
	begin(arguments, argument);
	say_list("list");
	one_pointer();
	turned_round();
	of_threads();
	of_a_child();
	memory();
	without();
	come_and_go();
	return 0;
}
