// Package hrana is a database/sql driver for libSQL servers, in pure Go.
package hrana
