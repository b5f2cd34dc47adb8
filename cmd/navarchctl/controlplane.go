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
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

const (
	defaultServer = "127.0.0.1:8080"
	debugPages    = "navarchd's debug pages"
)

// controlPlane is whose debug pages a command asks: those at an address, or those of all ready replicas that a kubeconfig leads to.
type controlPlane struct {
	server    string // an address; empty: see pages
	fallback  string // the address without a kubeconfig
	cluster   cluster.Flags
	everyRole bool // processes that do not serve proxies are asked, too

	found []page         // once they were looked for
	pods  []*cluster.Pod // of the same, where they are in a cluster
	// missing are the processes of a cluster that have not said anything: those that are not asked, and those that did not answer.
	missing []string
	where   string // for messages
}

func (c *controlPlane) bind(f *pflag.FlagSet) {
	c.bindAt(f, debugPages, defaultServer)
}

// bindAt adds the flags of a command that asks for something else than debug pages, which is at the address fallback without a kubeconfig.
func (c *controlPlane) bindAt(f *pflag.FlagSet, what, fallback string) {
	c.fallback = fallback
	f.StringVar(&c.server, "server", "", "Address of "+what+" (default: the ready replicas that the kubeconfig leads to; without a kubeconfig "+fallback+").")
	c.cluster.Bind(f)
}

// stated says whether a flag says which control plane is asked.
func (c *controlPlane) stated() bool {
	return c.server != "" || c.cluster.Kubeconfig != "" || c.cluster.Context != ""
}

// pages are those that are asked: of --server, or of all ready replicas of the cluster; without a kubeconfig of the address fallback.
func (c *controlPlane) pages(ctx context.Context) ([]page, error) {
	if c.found != nil {
		return c.found, nil
	}
	if c.server != "" || !c.cluster.Given() {
		c.where = cmp.Or(c.server, c.fallback)
		by, roles := "--server", " with role xds"
		if c.server == "" {
			by = "the default of --server, since no kubeconfig is at " + strings.Join(cluster.Kubeconfigs(), ", ")
		}
		if c.everyRole {
			roles = ""
		}
		c.found = []page{server(c.where, by, roles)}
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

// answered counts the replicas that answered.
func (c *controlPlane) answered() (n int) {
	for _, p := range c.found {
		if !slices.Contains(c.missing, noAnswer(p)) {
			n++
		}
	}
	return n
}

// noAnswer describes a replica that was asked, and did not answer.
func noAnswer(p page) string { return p.address + " (no answer)" }

// close ends connections to Pods.
func (c *controlPlane) close() {
	for _, pod := range c.pods {
		pod.Close()
	}
}

// atOnce is how many replicas are asked at the same time.
const atOnce = 16

// atEach calls do for all pages, atOnce of them at the same time, and returns the error of each.
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

// answer is what one replica said.
type answer[T any] struct {
	from  page
	value T
}

// gather asks all pages for the same JSON. One that does not answer is a line to warnings; it is an error where none does.
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
			if no := noAnswer(pages[i]); !slices.Contains(c.missing, no) { // of another page
				c.missing = append(c.missing, no)
			}
		}
	}
	return said, nil
}

// first asks all pages, and gives the answer of the one that has what is asked for, such as a proxy. Where none has it the error is that of one that
// knows why, else of all.
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
		return nil, fmt.Errorf("%s: %s", strings.Replace(no.said, "this replica", c.where, 1), "navarchctl proxy-status lists those that are")
	}
	return nil, errors.Join(elsewhere...)
}

// readFirst is first, of a JSON page.
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
