// A program that is linked to libibverbs and does nothing. It costs only what loading costs.

int main(void)
{
    return 0;
}
