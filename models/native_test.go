package models

import _ "rag2/tensor/native" // the engine under test beside GoMLX's own
