package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
)

const (
	defaultServer = "127.0.0.1:8080"
	serverEnv     = "NAVARCH_SERVER" // environment variable for another default
	debugPages    = "navarchd's debug pages"
)

// controlPlane selects the processes whose debug pages a command reads. They are the processes at some addresses, the
// ready replicas in the kubeconfig's cluster, or the processes in a report (--snapshot).
type controlPlane struct {
	server    string // an address, or several with commas between them; empty: the method pages finds the addresses
	fallback  string // the address that is used without server and without a kubeconfig
	cluster   cluster.Flags
	everyRole bool // also processes that serve no proxies

	found []page         // result of the method pages
	pods  []*cluster.Pod // Pods of the pages, if they are in a cluster
	// missing names processes whose answer is missing: Pods that were not queried, because they are not ready, and
	// processes that did not answer.
	missing []string
	silent  int    // number of processes in missing that did not answer
	where   string // describes the pages, for messages
	dialled bool   // dial was called
}

// usualServer returns the address of the debug pages that is used without a flag and without a kubeconfig. The result
// stated is true if the address is from the environment variable serverEnv.
func usualServer() (address string, stated bool) {
	address = os.Getenv(serverEnv)
	return cmp.Or(address, defaultServer), address != ""
}

func (c *controlPlane) bind(f *pflag.FlagSet) {
	c.bindAt(f, debugPages, defaultServer)
}

// bindAt adds the flags that select processes for an HTTP interface. The argument noun describes the interface in the
// help text. The argument fallback is the address of the interface if there is no kubeconfig.
func (c *controlPlane) bindAt(f *pflag.FlagSet, noun, fallback string) {
	if fallback == defaultServer {
		fallback, _ = usualServer()
	}
	c.fallback = fallback
	f.StringVar(&c.server, "server", "", "Address of "+noun+
		" (default: the ready replicas that the kubeconfig leads to; without a kubeconfig "+fallback+").")
	c.cluster.Bind(f)
}

// stated reports whether a flag selects the control plane.
func (c *controlPlane) stated() bool {
	return c.server != "" || c.cluster.Kubeconfig != "" || c.cluster.Context != ""
}

// inCluster reports whether the control plane is looked for in the kubeconfig's cluster, because a kubeconfig is given
// and --server is not.
func (c *controlPlane) inCluster() bool { return c.server == "" && c.cluster.Given() }

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
	if !c.inCluster() {
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
			url: "http://localhost:" + strconv.Itoa(pod.Monitoring), client: pod.Client(), revision: pod.Revision})
	}
	return c.found, nil
}

// noAnswer returns the entry of controlPlane.missing for a process that did not answer.
func noAnswer(p page) string { return p.address + " (no answer)" }

// unanswered adds a process that did not answer to c.missing and to the number c.silent. Further calls for the same
// process have no effect. Pods that are not ready are in c.missing, but do not count in c.silent, because they have no
// proxies yet.
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

// atEach calls the function do for each page, with at most atOnce concurrent calls. The result has the error of each
// call at the index of its page.
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

// answer is a value together with the process that sent it.
type answer[T any] struct {
	from  page
	value T
}

// gather requests a path, whose response is JSON, from all pages. It returns the answers in the order of the pages. For
// each page that fails it prints a line to warnings. If all pages fail, the error joins the errors of the pages.
func gather[T any](ctx context.Context, c *controlPlane, path string, warnings io.Writer) ([]answer[T], error) {
	return gatherBy(ctx, c, warnings, func(p page, into *T) error { return p.read(ctx, path, into) })
}

// gatherOwn requests from each page the item of an endpoint of the API that is about the process itself. Processes of
// older versions do not have the endpoint: then their page /debug/NAME is read. Results and errors are those of gather.
func gatherOwn[T any](ctx context.Context, c *controlPlane, name string, warnings io.Writer) ([]answer[T], error) {
	return gatherBy(ctx, c, warnings, func(p page, into *T) error {
		var a fleetapi.Answer[T]
		err := p.read(ctx, fleetapi.Root+name, &a)
		switch {
		case noEndpoint(err):
			return p.read(ctx, "/debug/"+name, into)
		case err == nil && len(a.Items) != 1:
			return fmt.Errorf("%s%s of %s: %d items, want one", fleetapi.Root, name, p.address, len(a.Items))
		case err == nil:
			*into = a.Items[0]
		}
		return err
	})
}

// gatherBy calls read for each page. Results and errors are those of gather.
func gatherBy[T any](ctx context.Context, c *controlPlane, warnings io.Writer, read func(p page, into *T) error) ([]answer[T], error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]answer[T], len(pages))
	failed := atEach(pages, func(i int, p page) error {
		all[i].from = p
		return read(p, &all[i].value)
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
// fail. A path about one proxy succeeds only at the replica to which the proxy is connected. If all pages fail, joined
// makes the error from their errors.
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
	for i, err := range failed {
		if err == nil {
			return bodies[i], nil
		}
	}
	return nil, c.joined(failed)
}

// joined joins the errors of all processes. It leaves out the errors that a proxy is not connected to a process, unless
// there are no others. Then the result is one sentence about all processes.
func (c *controlPlane) joined(failed []error) error {
	var others []error
	absent := ""
	for _, err := range failed {
		var no statusError
		switch {
		case !elsewhere(err):
			others = append(others, err)
		case errors.As(err, &no) && (absent == "" || strings.Contains(no.said, "did not answer")):
			absent = no.said
		}
	}
	if len(others) > 0 {
		return errors.Join(others...)
	}
	return fmt.Errorf("%s: navarchctl proxy-status lists the connected proxies",
		show.Printable(strings.Replace(absent, "this replica", c.where, 1)))
}

// readFirst calls the method first, and decodes the returned body, which must be JSON. Errors are those of the method
// first and of the decoder.
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
