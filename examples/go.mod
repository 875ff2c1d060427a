module example.com/outbox/examples

go 1.25.0

require example.com/outbox v0.0.0

replace example.com/outbox => ..
