// Package apiserver is a client of one Kubernetes API server, for single requests in JSON: reviews, public keys, objects that are read or written by
// their name, and lists that are read once. What is followed is store/source/kube's.
//
// Owns: its connections.  Reads: a kubeconfig, or the service account of the Pod.  Never: sends anything to another host than the API
// server's; follows a redirection; reads an answer without a bound; logs what it sends.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// MaxAnswer bounds an answer, in bytes: etcd takes no larger object of Kubernetes than 1.5 MiB.
const MaxAnswer = 4 << 20

// Client is safe for concurrent use.
type Client struct {
	base string // URL without a slash at its end
	http *http.Client
}

// Status is an answer that says no: an error of its caller's, or of the API server.
type Status struct {
	Code            int    // of HTTP
	Reason, Message string // as the API server says, shortened; may be empty
}

func (s *Status) Error() string {
	return fmt.Sprintf("the API server answered %d %s: %s", s.Code, s.Reason, s.Message)
}

// IsStatus says whether an error is an answer with a code of HTTP.
func IsStatus(err error, code int) bool {
	var status *Status
	return errors.As(err, &status) && status.Code == code
}

// Config is that of a kubeconfig; of an empty path the service account of the Pod that this process is in.
// An error: the file cannot be read, or this process is not in a Pod.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		err = fmt.Errorf("no kubeconfig is given, and this process is not in a Pod: %w", err)
	}
	return config, err
}

// New is a client of the API server of Config(kubeconfig). Nothing is asked. Errors are those of Config and Of.
func New(kubeconfig string) (*Client, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return Of(config)
}

// Of is a client of an API server. Nothing is asked. An error: an address, certificate or other credential in the configuration cannot be used.
func Of(config *rest.Config) (*Client, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	client, err := HTTPClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimSuffix(base.String(), "/"), http: client}, nil
}

// HTTPClient sends requests with a credential, to the API server alone: the transport adds the credential to whatever is asked, so nothing is
// asked of where a redirection leads to. An error: a certificate or other credential in the configuration cannot be used.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *client // HTTPClientFor may give http.DefaultClient
	own.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		return fmt.Errorf("the API server redirects to %.100q, which is not followed", r.URL.Redacted())
	}
	return &own, nil
}

// direct has requests go by no proxy, whatever the environment says.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// Address is the API server's URL.
func (c *Client) Address() string { return c.base }

// Get reads what is at a path (with a query, where it has one) of the API server, at most limit bytes: more are an error. *Status: it says no.
func (c *Client) Get(ctx context.Context, path string, limit int) ([]byte, error) {
	answer, err := c.ask(ctx, path, plain)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return bounded(answer.Body, limit)
}

// Do sends a value as JSON, nil: none, and reads the answer into another, nil: it is not read. *Status: the API server says no.
// Other errors: there is no answer, it is too large, or no such JSON.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	answer, err := c.send(ctx, method, path, plain, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := bounded(answer.Body, MaxAnswer)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the API server's answer is not the JSON that was asked for: %w", err)
	}
	return nil
}

// pageSize is how many objects a page of a list has.
const pageSize = 200

// Each reads a list page by page, and gives each object as it is, in the API server's order. path may have a query. The error is each's, which ends it, or
// one of Do: *Status also where the list changed so much meanwhile that it cannot be read on (410).
func (c *Client) Each(ctx context.Context, path string, each func(json.RawMessage) error) error {
	first := "?"
	if strings.Contains(path, "?") {
		first = "&"
	}
	for at := ""; ; {
		var page struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		if err := c.Do(ctx, http.MethodGet, fmt.Sprintf("%s%slimit=%d&continue=%s", path, first, pageSize, url.QueryEscape(at)), nil,
			&page); err != nil {
			return err
		}
		for _, object := range page.Items {
			if err := each(object); err != nil {
				return err
			}
		}
		if at = page.Metadata.Continue; at == "" {
			return nil
		}
	}
}

// plain is the form of most answers; the latter is for keys alone.
const plain = "application/json, application/jwk-set+json"

// ask reads what is at a path, in a form.
func (c *Client) ask(ctx context.Context, path, form string) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, form, nil)
}

// send gives an answer that says yes; whoever called closes its body.
func (c *Client) send(ctx context.Context, method, path, form string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", form)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	status := &Status{Code: answer.StatusCode}
	var said struct{ Reason, Message string }
	if text, err := bounded(answer.Body, MaxAnswer); err == nil && json.Unmarshal(text, &said) == nil {
		status.Reason, status.Message = brief(said.Reason), brief(said.Message)
	}
	return nil, status
}

func bounded(r io.Reader, limit int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(text) > limit {
		return nil, fmt.Errorf("the API server's answer has more than %d bytes", limit)
	}
	return text, err
}

// brief is a text that fits into a log line.
func brief(text string) string {
	const most = 300
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
