/* The C interface of COIN-OR's branch and cut, loaded when a program is first to be solved: the
 * library takes milliseconds to load, and no other command needs it. The names and types are those of
 * its Cbc_C_Interface.h, which the build does not need either. */
#ifndef PAGESTASH_TOOLS_MIP_CBC_H
#define PAGESTASH_TOOLS_MIP_CBC_H

typedef struct Cbc_Model Cbc_Model;

/* result, name, arguments */
#define MIP_CBC_FUNCTIONS(F)                                                                 \
    F(Cbc_Model *, newModel, (void))                                                         \
    F(void, deleteModel, (Cbc_Model *))                                                      \
    F(void, setLogLevel, (Cbc_Model *, int))                                                 \
    F(void, setParameter, (Cbc_Model *, const char *name, const char *value))                \
    F(void, setMaximumSeconds, (Cbc_Model *, double))                                        \
    F(void, addCol,                                                                          \
      (Cbc_Model *, const char *name, double low, double high, double cost, char is_integer, \
       int num, int *rows, double *factors))                                                 \
    F(void, addRow,                                                                          \
      (Cbc_Model *, const char *name, int num, const int *columns, const double *factors,    \
       char sense, double bound))                                                            \
    F(int, readLp, (Cbc_Model *, const char *path))                                          \
    F(int, solve, (Cbc_Model *))                                                             \
    F(int, isProvenOptimal, (Cbc_Model *))                                                   \
    F(int, isProvenInfeasible, (Cbc_Model *))                                                \
    F(double, getObjValue, (Cbc_Model *))                                                    \
    F(double, getBestPossibleObjValue, (Cbc_Model *))                                        \
    F(const double *, bestSolution, (Cbc_Model *))                                           \
    F(const double *, getColSolution, (Cbc_Model *))

#define MIP_CBC_MEMBER(result, name, arguments) result(*name) arguments;
typedef struct mip_cbc {
    MIP_CBC_FUNCTIONS(MIP_CBC_MEMBER)
} mip_cbc;

/* The same table at every call; it stays loaded. NULL: there is none, which has been said. */
const mip_cbc *mip_cbc_load(void);

#endif
