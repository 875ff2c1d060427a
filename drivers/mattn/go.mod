module example.com/outbox/drivers/mattn

go 1.25.0

replace example.com/outbox => ../..

require (
	example.com/outbox v0.0.0-00010101000000-000000000000
	github.com/mattn/go-sqlite3 v1.14.53
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
