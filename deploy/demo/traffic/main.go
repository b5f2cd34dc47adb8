// Command traffic is both ends of the traffic of `make demo-kube`. `serve` answers HTTP/1.1, HTTP/2, gRPC and lines
// over TCP, and ends without failing a request. `send` sends to such servers continuously and counts failures. `report`
// prints the counts.
//
// Owns: its ports. Reads: flags, the admin port of its Pod's Envoy. Never: retries a request; depends on the mesh.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Ports of a server, one for each protocol.
const (
	httpPort  = "8080"
	http2Port = "8081"
	grpcPort  = "8082"
	tcpPort   = "8083"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	what := ""
	if len(os.Args) > 1 {
		what = os.Args[1]
	}
	flags := flag.NewFlagSet("traffic "+what, flag.ExitOnError)
	var run func() error
	switch what {
	case "serve":
		s := &server{}
		flags.StringVar(&s.name, "name", "app", "Name in the answers.")
		flags.StringVar(&s.version, "version", "v1", "Version in the answers.")
		flags.StringVar(&s.host, "listen", "", "Host to listen at; empty: all.")
		run = func() error { return s.run(ctx) }
	case "send":
		c := &client{envoy: "http://127.0.0.1:15000"}
		flags.Var(&c.targets, "to", "WORKLOAD=HOST, may be repeated.")
		flags.Float64Var(&c.rate, "rate", 60, "Requests and messages a second to each workload, over all protocols.")
		addr := flags.String("report-addr", reportAddr, "Where the report is served.")
		run = func() error { return c.run(ctx, *addr) }
	case "report":
		run = printReport
	default:
		fmt.Fprintln(os.Stderr, "traffic: want serve, send or report")
		os.Exit(2)
	}
	if err := flags.Parse(os.Args[2:]); err != nil {
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

// reportAddr is on the Pod's loopback: kubectl exec reads it.
const reportAddr = "127.0.0.1:9999"

// printReport prints the report of this Pod's sender.
func printReport() error {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + reportAddr + "/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the sender answers %s", answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
