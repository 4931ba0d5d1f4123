package t5

import _ "rag2/tensor/native" // one of the engines under test
