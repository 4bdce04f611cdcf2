int gdr_open(void);
