module example.com/outbox/examples

go 1.25.0

require (
	example.com/outbox v0.0.0
	github.com/google/uuid v1.6.0
	github.com/schollz/progressbar/v3 v3.19.1
	github.com/stretchr/testify v1.12.1
	github.com/tursodatabase/go-libsql v0.0.0-20251219133454-43644db490ff
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.21.0
	golang.org/x/term v0.44.0
)

require (
	github.com/antlr4-go/antlr/v4 v4.13.0 // indirect
	github.com/libsql/sqlite-antlr4-parser v0.0.0-20240327125255-dbf53b6cbf06 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20230515195305-f3d0a9c9a5cc // indirect
	golang.org/x/sys v0.46.0 // indirect
)

replace example.com/outbox => ..
