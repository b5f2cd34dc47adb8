package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchctl/progress"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// patience is the time limit of one request, including its response.
const patience = 30 * time.Second

// plain is the HTTP client for addresses that this process connects to directly, not through the API server.
var plain = &http.Client{Transport: progress.Transport(http.DefaultTransport)}

// page is one HTTP server that commands query: a process of navarchd, or an Envoy.
type page struct {
	address string       // host:port, a URL or the name of a Pod; for messages, and for requests if url is empty
	by      string       // origin of the address (a flag, or a context of the kubeconfig), for messages
	what    string       // name of the interface, such as "navarchd's debug pages", for messages
	help    string       // advice in the error of an unreachable server
	url     string       // base URL of requests, without a path; empty: address
	client  *http.Client // nil: plain
	// revision is the revision of the control plane that the Pod states; empty outside of a cluster.
	revision string
	most     int64 // longest body of a response, in bytes; 0: unbounded
}

// server returns the page of navarchd's debug interface at an address. The argument by names the flag or the default
// that the address comes from. The argument roles is added to the advice "is navarchd running there". It is empty if
// processes of every role have the interface.
func server(address, by, roles string) page {
	return page{address: address, what: debugPages, by: by, help: "is navarchd running there" + roles + ", or is the port forwarded?"}
}

func admin(address string) page {
	return page{address: address, what: "Envoy's admin interface", by: "--envoy",
		help: "it listens on the loopback address of its own network namespace, as a rule on port 15000"}
}

// statusError is a response with an unexpected status.
type statusError struct {
	status int
	text   string // includes the address
	said   string // body of the response, trimmed
}

func (e statusError) Error() string { return e.text }

// get sends a GET request without a token or body. Result and errors are those of ask.
func (p page) get(ctx context.Context, path string) ([]byte, error) {
	return p.ask(ctx, http.MethodGet, path, "", nil)
}

// ask sends a request and returns the body of the response. A token that is not empty is sent as a bearer token. The
// call blocks for patience at most. For a status other than 200 and 202, the error is a statusError, which names the
// address and the response. Other errors name the address and its origin (by).
func (p page) ask(ctx context.Context, method, path, token string, content []byte) ([]byte, error) {
	return p.within(ctx, patience, method, path, token, content)
}

// within is like ask, with the argument patience as its time limit.
func (p page) within(ctx context.Context, patience time.Duration, method, path, token string, content []byte) ([]byte, error) {
	address := cmp.Or(p.url, p.address)
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address+path, bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", p.by, p.address, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := cmp.Or(p.client, plain).Do(req)
	if err != nil {
		return nil, p.unreachable(err)
	}
	defer res.Body.Close()
	from := io.Reader(res.Body)
	if p.most > 0 {
		from = io.LimitReader(from, p.most+1)
	}
	body, err := io.ReadAll(from)
	if err != nil {
		return nil, p.unreachable(err)
	}
	if p.most > 0 && int64(len(body)) > p.most {
		return nil, fmt.Errorf("%s %s: %s answers more than %d bytes, and no more are read", p.by, p.address, p.what, p.most)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted {
		text := strings.TrimSpace(string(body))
		said := text
		text = show.Printable(text) // it may name objects, which forge no lines
		switch res.StatusCode {
		case http.StatusNotFound, http.StatusBadRequest:
		case http.StatusUnauthorized:
			text += ": send the request from the machine on which navarchd runs (for example with kubectl port-forward)"
		default:
			text = res.Status + ": " + text
		}
		if res.StatusCode == http.StatusServiceUnavailable && p.what == debugPages {
			text += "; navarchctl problems may say why"
		}
		return nil, statusError{res.StatusCode, fmt.Sprintf("%s at %s: %s", p.what, p.address, text), said}
	}
	return body, nil
}

func (p page) unreachable(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	help := p.help
	switch _, _, bad := net.SplitHostPort(p.address); {
	case strings.Contains(err.Error(), "malformed HTTP response"):
		help = "is this the port of another protocol, such as gRPC? The pages are at navarchd's --http-addr"
		err = errors.New("the answer is not HTTP")
	case bad != nil && p.url == "" && !strings.Contains(p.address, "://"):
		help = "the address states no port: want HOST:PORT, as 127.0.0.1:8080"
	}
	return fmt.Errorf("cannot reach %s at %s (%s): %w; %s", p.what, p.address, p.by, err, help)
}

// read requests a path with get and decodes the JSON response into a pointer. Errors are those of get and of the
// decoder.
func (p page) read(ctx context.Context, path string, into any) error {
	body, err := p.get(ctx, path)
	if err != nil {
		return err
	}
	answer := json.NewDecoder(bytes.NewReader(body))
	answer.UseNumber() // a revision is not a floating point number
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("%s at %s (%s): %s is not what was expected: %w", p.what, p.address, p.by, path, err)
	}
	return nil
}
