package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

const (
	defaultServer = "127.0.0.1:8080"
	serverEnv     = "NAVARCH_SERVER" // environment variable for another default
	debugPages    = "navarchd's debug pages"
)

// controlPlane selects the debug pages of processes: those at an address, those of the ready replicas in the
// kubeconfig's cluster, or those in a report (--snapshot).
type controlPlane struct {
	server    string // an address, or several with commas between them; empty: pages finds the addresses
	fallback  string // the address that is used without server and without a kubeconfig
	cluster   cluster.Flags
	everyRole bool // also processes that serve no proxies

	found []page         // result of pages
	pods  []*cluster.Pod // Pods of the pages, in a cluster
	// missing names processes whose answer is missing: Pods that were not queried, because they are not ready, and
	// processes that did not answer.
	missing []string
	silent  int    // number of processes in missing that did not answer
	where   string // names the pages, for messages
	dialled bool   // dial was called
}

// usualServer returns the address of the debug pages without a flag and without a kubeconfig. stated reports that the
// environment states it.
func usualServer() (address string, stated bool) {
	address = os.Getenv(serverEnv)
	return cmp.Or(address, defaultServer), address != ""
}

func (c *controlPlane) bind(f *pflag.FlagSet) {
	c.bindAt(f, debugPages, defaultServer)
}

// bindAt adds the flags of a command for another interface than the debug pages. fallback is the address of that
// interface if there is no kubeconfig.
func (c *controlPlane) bindAt(f *pflag.FlagSet, what, fallback string) {
	if fallback == defaultServer {
		fallback, _ = usualServer()
	}
	c.fallback = fallback
	f.StringVar(&c.server, "server", "", "Address of "+what+
		" (default: the ready replicas that the kubeconfig leads to; without a kubeconfig "+fallback+").")
	c.cluster.Bind(f)
}

// stated reports whether a flag selects the control plane.
func (c *controlPlane) stated() bool {
	return c.server != "" || c.cluster.Kubeconfig != "" || c.cluster.Context != ""
}

// pages returns the pages to query, one for each process, and keeps them for the next call. It uses the first of
// these sources that is given: the report (--snapshot), --server, the ready replicas in the kubeconfig's cluster,
// fallback. Without an error the result is not empty.
func (c *controlPlane) pages(ctx context.Context) ([]page, error) {
	if c.found != nil {
		return c.found, nil
	}
	if o := openedOf(ctx); o != nil {
		c.where, c.found = "the processes of the report "+o.file, o.pages(c.everyRole)
		if len(c.found) == 0 {
			return nil, fmt.Errorf("no process of the report %s serves proxies", o.file)
		}
		return c.found, nil
	}
	if c.server != "" || !c.cluster.Given() {
		c.where = cmp.Or(c.server, c.fallback)
		by, roles := "--server", " with role xds"
		usual, stated := usualServer()
		switch {
		case c.server == "" && stated && c.fallback == usual:
			by = serverEnv
		case c.server == "":
			by = "the default of --server, since no kubeconfig is at " + strings.Join(cluster.Kubeconfigs(), ", ")
		}
		if c.everyRole {
			roles = ""
		}
		for address := range strings.SplitSeq(c.where, ",") {
			c.found = append(c.found, server(address, by, roles))
		}
		return c.found, nil
	}
	in, err := c.cluster.Open()
	if err != nil {
		return nil, err
	}
	list := in.Replicas
	if c.everyRole {
		list = in.Processes
	}
	if c.pods, c.missing, err = list(ctx); err != nil {
		return nil, err
	}
	c.where = fmt.Sprintf("any of the %d replicas (%s, namespace %s, labels %s)", len(c.pods), in, in.Namespace, in.Selector())
	for _, pod := range c.pods {
		c.found = append(c.found, page{address: pod.String(), by: in.String(), what: debugPages, help: "its log may say why",
			url: "http://localhost:" + strconv.Itoa(pod.Monitoring), client: pod.Client()})
	}
	return c.found, nil
}

// answered returns the number of processes that answered.
func (c *controlPlane) answered() (n int) {
	for _, p := range c.found {
		if !slices.Contains(c.missing, noAnswer(p)) {
			n++
		}
	}
	return n
}

// noAnswer describes a process that did not answer, for missing.
func noAnswer(p page) string { return p.address + " (no answer)" }

// unanswered adds a process that did not answer to c.missing, once, though several requests to it may fail. c.silent
// counts these processes. Pods in c.missing that are not ready do not count, because they have no proxies yet.
func (c *controlPlane) unanswered(p page) {
	if no := noAnswer(p); !slices.Contains(c.missing, no) {
		c.missing, c.silent = append(c.missing, no), c.silent+1
	}
}

// close closes the connections to Pods.
func (c *controlPlane) close() {
	for _, pod := range c.pods {
		pod.Close()
	}
}

// atOnce is the number of processes that are queried concurrently.
const atOnce = 16

// atEach calls do for each page, with at most atOnce concurrent calls. The result has the error of each call at the
// index of its page.
func atEach(pages []page, do func(i int, p page) error) []error {
	failed := make([]error, len(pages))
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for i, p := range pages {
		asking.Go(func() error {
			failed[i] = do(i, p)
			return nil
		})
	}
	_ = asking.Wait()
	return failed
}

// answer is the value from one process.
type answer[T any] struct {
	from  page
	value T
}

// gather reads a path with a JSON response from all pages, and returns the answers in the order of the pages. For each
// page that fails it prints a line to warnings. If all pages fail, the error joins the errors of the pages.
func gather[T any](ctx context.Context, c *controlPlane, path string, warnings io.Writer) ([]answer[T], error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]answer[T], len(pages))
	failed := atEach(pages, func(i int, p page) error {
		all[i].from = p
		return p.read(ctx, path, &all[i].value)
	})
	var said []answer[T]
	for i, err := range failed {
		if err == nil {
			said = append(said, all[i])
		}
	}
	if len(said) == 0 {
		return nil, errors.Join(failed...)
	}
	for i, err := range failed {
		if err != nil {
			fmt.Fprintln(warnings, "warning:", err)
			c.unanswered(pages[i])
		}
	}
	return said, nil
}

// first requests a path from all pages, waits for all responses, and returns the body of the first page that did not
// fail. For a path about one proxy, the page of the proxy's replica does not fail. If all pages fail, the error joins
// the errors of the pages, except errors which state that the proxy is not connected to the replica. If all replicas
// state that, the error contains the statement once.
func (c *controlPlane) first(ctx context.Context, path string) ([]byte, error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return nil, err
	}
	bodies := make([][]byte, len(pages))
	failed := atEach(pages, func(i int, p page) (err error) {
		bodies[i], err = p.get(ctx, path)
		return err
	})
	var elsewhere, others []error
	for i, err := range failed {
		var no statusError
		switch {
		case err == nil:
			return bodies[i], nil
		case errors.As(err, &no) && no.status == http.StatusNotFound && strings.Contains(no.said, "is not connected to this replica"):
			elsewhere = append(elsewhere, err)
		default:
			others = append(others, err)
		}
	}
	if len(others) > 0 {
		return nil, errors.Join(others...)
	}
	if len(elsewhere) > 1 {
		var no statusError
		errors.As(elsewhere[0], &no)
		return nil, fmt.Errorf("%s: navarchctl proxy-status lists the connected proxies", strings.Replace(no.said, "this replica", c.where, 1))
	}
	return nil, errors.Join(elsewhere...)
}

// readFirst decodes the body that first returns, which must be JSON. Errors are those of first and of the decoder.
func (c *controlPlane) readFirst(ctx context.Context, path string, into any) error {
	body, err := c.first(ctx, path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %s is not what was expected: %w", debugPages, path, err)
	}
	return nil
}
