// Package apiserver is a client of one Kubernetes API server. It sends single requests in JSON: reviews, requests for
// public keys, reads and writes of objects by name, and lists that are read once. Package store/source/kube watches
// objects instead.
//
// Owns: its connections.
// Reads: a kubeconfig, or the service account of the Pod.
// Never: follows a redirect; reads a response without a bound; logs the content of requests.
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

// MaxAnswer is the maximum length of a response body in bytes. Get has its own parameter for the maximum. One object
// always fits, because etcd accepts objects of up to 1.5 MiB.
const MaxAnswer = 4 << 20

// Client sends requests to one API server. It is safe for concurrent use. A method with a context blocks until the
// response is read. If the context ends before that, the method returns an error.
type Client struct {
	base string // URL without a slash at its end
	http *http.Client
}

// Status is the error for a response with an HTTP status code other than 2xx. A redirect is a different error.
type Status struct {
	Code            int    // HTTP status code
	Reason, Message string // from the API server, at most 300 bytes each; may be empty
}

// Error implements error.
func (s *Status) Error() string {
	return fmt.Sprintf("the API server answered %d %s: %s", s.Code, s.Reason, s.Message)
}

// IsStatus reports whether an error is, or wraps, a *Status with the given HTTP status code.
func IsStatus(err error, code int) bool {
	var status *Status
	return errors.As(err, &status) && status.Code == code
}

// Config returns the client configuration of the kubeconfig at a path. An empty path means the service account of this
// process's Pod. The caller owns the result. An error means that the kubeconfig cannot be read, or is empty or invalid.
// For an empty path, it means that this process is not in a Pod, or cannot read the service account's token.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		content, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}).Load()
		if err != nil {
			return nil, err
		}
		config, err := clientcmd.NewDefaultClientConfig(*content, &clientcmd.ConfigOverrides{}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		err = fmt.Errorf("no kubeconfig is given, and this process is not in a Pod: %w", err)
	}
	return config, err
}

// New returns a client for the configuration of Config(kubeconfig). It sends no request. Errors are those of Config and
// Of.
func New(kubeconfig string) (*Client, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return Of(config)
}

// Of returns a client for a configuration, which must not change afterwards. It sends no request. An error means that
// an address, certificate, credential or TLS setting in the configuration is unusable.
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

// HTTPClient returns an HTTP client whose transport adds the credential of a configuration to each request. A request
// that is redirected fails, because a redirect may lead to another host. An error of HTTPClient means that a
// certificate, credential or TLS setting in the configuration is unusable.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *client // HTTPClientFor may return http.DefaultClient
	own.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		return fmt.Errorf("the API server redirects to %.100q, which is not followed", r.URL.Redacted())
	}
	return &own, nil
}

// direct is the proxy function of a transport that uses no HTTP proxy, not even one named by the environment.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// Address returns the API server's URL, without a slash at its end.
func (c *Client) Address() string { return c.base }

// Get returns the resource at a path, as the API server sent it. The caller owns the bytes. The path begins with a
// slash, and may have a query. If the API server returned an error, the error of Get is a *Status. Other errors mean
// that path is invalid, or that the response is incomplete, missing, a redirect, or longer than limit bytes.
func (c *Client) Get(ctx context.Context, path string, limit int) ([]byte, error) {
	answer, err := c.ask(ctx, path, plain)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return bounded(answer.Body, limit)
}

// Do sends a request and decodes the response. The path has the form that Get requires. The request's body is input,
// encoded as JSON. If input is nil, the request has no body. The response is decoded into output, a pointer. If output
// is nil, the response is discarded. If the API server returned an error, the error of Do is a *Status. Other errors
// mean that the request cannot be encoded, or that method or path is invalid. They may also mean that the response is
// incomplete, missing, a redirect, longer than MaxAnswer bytes, or not decodable. After an error, a write may still
// have taken effect.
func (c *Client) Do(ctx context.Context, method, path string, input, output any) error {
	return c.do(ctx, method, path, "application/json", input, output)
}

// Apply sends the object input as a server-side apply request, and decodes the response into output like Do. The caller
// adds the field manager to the query of path. Errors are those of Do.
func (c *Client) Apply(ctx context.Context, path string, input, output any) error {
	return c.do(ctx, http.MethodPatch, path, "application/apply-patch+yaml", input, output) // JSON is YAML
}

// do implements Do and Apply. The parameter mediaType is the media type of the request's body.
func (c *Client) do(ctx context.Context, method, path, mediaType string, input, output any) error {
	var body []byte
	if input != nil {
		var err error
		if body, err = json.Marshal(input); err != nil {
			return err
		}
	}
	answer, err := c.send(ctx, method, path, plain, mediaType, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := bounded(answer.Body, MaxAnswer)
	if err != nil || output == nil {
		return err
	}
	if err := json.Unmarshal(text, output); err != nil {
		return fmt.Errorf("the API server's answer is not the JSON that was asked for: %w", err)
	}
	return nil
}

// pageSize is the number of objects in the first page of a list. After a page that exceeds MaxAnswer, pages have fewer
// objects.
const pageSize = 200

// Each reads the list at a path page by page, and calls the function visit with the JSON of every object, in the API
// server's order. The function may keep the JSON. The path may have a query, but without the parameters "limit" and
// "continue". If a page exceeds MaxAnswer, it is requested again with half as many objects.
//
// An error of the function ends the list, and is returned. Other errors are those of Do. Before an error, the function
// may have been called for some objects. *Status with code 410 means that the list cannot be continued, because the API
// server no longer has the list's revision.
func (c *Client) Each(ctx context.Context, path string, visit func(json.RawMessage) error) error {
	first := "?"
	if strings.Contains(path, "?") {
		first = "&"
	}
	size := pageSize
	for at := ""; ; {
		var page struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		err := c.Do(ctx, http.MethodGet, fmt.Sprintf("%s%slimit=%d&continue=%s", path, first, size, url.QueryEscape(at)), nil, &page)
		if large := (*largeError)(nil); errors.As(err, &large) && size > 1 {
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		for _, object := range page.Items {
			if err := visit(object); err != nil {
				return err
			}
		}
		if at = page.Metadata.Continue; at == "" {
			return nil
		}
	}
}

// plain lists the accepted media types of responses: JSON, and the type of public keys.
const plain = "application/json, application/jwk-set+json"

// ask sends a GET request. The parameter form lists the accepted media types. Errors are those of send.
func (c *Client) ask(ctx context.Context, path, form string) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, form, "", nil)
}

// send sends a request, and returns the response if its status code is 2xx. The caller must close the response's body.
// The parameter form lists the accepted media types of the response. The parameter mediaType is the media type of the
// request's body. For other status codes except redirects, the error is a *Status.
func (c *Client) send(ctx context.Context, method, path, form, mediaType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", form)
	if body != nil {
		request.Header.Set("Content-Type", mediaType)
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

// bounded reads all of r. If r has more than limit bytes, the error is *largeError.
func bounded(r io.Reader, limit int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(text) > limit {
		return nil, &largeError{limit}
	}
	return text, err
}

// largeError is the error for a response with more than limit bytes.
type largeError struct{ limit int }

func (e *largeError) Error() string {
	return fmt.Sprintf("the API server's answer has more than %d bytes", e.limit)
}

// brief shortens a text for log lines.
func brief(text string) string {
	const most = 300
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
