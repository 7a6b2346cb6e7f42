// A program that is linked to libibverbs and does nothing: what it costs is to be loaded.

int main(void)
{
    return 0;
}
