package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"navarch.io/navarch/deploy/testcluster/logs"
)

// Limits of streams, as in the kubelet.
const (
	idle     = 4 * time.Hour
	creation = 30 * time.Second
)

// serve answers the API server, which authenticates itself by its client certificate (Config.TLS).
func (n *Node) serve(ctx context.Context) error {
	var listener net.Listener
	if err := n.Network.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(n.Network.Address.String(), strconv.Itoa(Port)))
		return err
	}); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.ofPod(serveLogs))
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.ofPod(serveExec))
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.ofPod(servePortForward))
	// Only HTTP/1.1: streams are upgraded connections.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(tls.NewListener(listener, n.TLS)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (n *Node) ofPod(serve func(*pod, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := n.find(r.PathValue("namespace"), r.PathValue("pod"))
		if p == nil {
			http.Error(w, fmt.Sprintf("pod %q does not exist on node %s", r.PathValue("pod"), n.Name), http.StatusNotFound)
			return
		}
		serve(p, w, r)
	}
}

func serveLogs(p *pod, w http.ResponseWriter, r *http.Request) {
	q, name := r.URL.Query(), r.PathValue("container")
	o := logs.Options{Follow: q.Get("follow") == "true", Timestamps: q.Get("timestamps") == "true", Tail: -1}
	if tail, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		o.Tail = tail
	}
	o.Limit, _ = strconv.Atoi(q.Get("limitBytes")) // the API server has validated it
	if seconds, err := strconv.Atoi(q.Get("sinceSeconds")); err == nil {
		o.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if at, err := time.Parse(time.RFC3339, q.Get("sinceTime")); err == nil {
		o.Since = at
	}
	p.mu.Lock()
	var log *logs.Log
	if one := p.runs[name]; one != nil {
		if log = one.log; q.Get("previous") == "true" {
			log = one.previous
		}
	}
	p.mu.Unlock()
	if log == nil {
		http.Error(w, fmt.Sprintf("container %q in pod %q has no such log", name, p.name), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	flush := func() { _ = http.NewResponseController(w).Flush() }
	if err := log.Read(r.Context(), w, o, flush); err != nil {
		p.node.Log.Info("log not read to its end", "pod", p.namespace+"/"+p.name, "err", err)
	}
}

func serveExec(p *pod, w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, p, p.name, string(p.object.Load().UID), r.PathValue("container"),
		r.URL.Query()["command"], options, idle, creation, remotecommand.SupportedStreamingProtocols)
}

func servePortForward(p *pod, w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, p, p.name, string(p.object.Load().UID), options, idle, creation, portforward.SupportedProtocols)
}

// PortForward forwards one connection to a port of the Pod's loopback, until it ends. Errors: the Pod does not run, or
// the port refuses the connection.
func (p *pod) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	n := p.network.Load()
	if n == nil {
		return errors.New("the Pod does not run")
	}
	var c net.Conn
	if err := n.space.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, stream)
		_ = c.(*net.TCPConn).CloseWrite()
		sent <- err
	}()
	_, err := io.Copy(stream, c)
	return err
}
