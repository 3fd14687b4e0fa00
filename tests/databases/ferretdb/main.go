// A server that speaks MongoDB's protocol, for the tests: FerretDB over SQLite files.
// Usage: ferretdb ADDRESS FOLDER
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
		Handler:   "sqlite",
		// The tests do not wait for the disk.
		SQLiteURL: "file:" + os.Args[2] + "/?_pragma=synchronous(off)",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
