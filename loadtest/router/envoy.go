// Package router runs a real Envoy as the gateway of a load run. It also records what a server sends to a gateway, and
// serves the recording to another Envoy, so that Envoy's own share of a change can be measured (Replay).
//
// Owns: the processes and the server that it starts, until they are closed. Reads: push/xds, loadtest/gauge. Never:
// plans anything; ends another process.
package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/store/loopback"
)

// Node returns the node of a gateway's Pod with a label istio.
func Node(namespace, name, label string) *corev3.Node {
	metadata, err := structpb.NewStruct(map[string]any{"NAME": name, "NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes",
		"SERVICE_ACCOUNT": name, "INSTANCE_IPS": "127.0.0.1", "LABELS": map[string]any{"istio": label}})
	if err != nil {
		panic(err) // a map of texts
	}
	return &corev3.Node{Id: fmt.Sprintf("router~127.0.0.1~%s.%s~%[2]s.svc.cluster.local", name, namespace),
		Cluster: name + "." + namespace, Metadata: metadata}
}

// Envoy is a running process of Envoy.
type Envoy struct {
	PID   int
	admin string // host:port
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	http  http.Client
}

// Start runs the Envoy at a path as a gateway. Its configuration comes from the server at host:port, in plain text; its
// bootstrap and log are written to a folder, with the name. The error is that of a file or of the program.
func Start(binary, dir, name, server string, node *corev3.Node) (*Envoy, error) {
	e := &Envoy{ended: make(chan struct{}), log: filepath.Join(dir, name+".log"), http: http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	var err error
	if e.admin, err = loopback.Address(); err != nil {
		return nil, err
	}
	text, err := bootstrap(server, e.admin, node)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(e.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	e.cmd = exec.Command(binary, "-c", path, "--disable-hot-restart", "--concurrency", "1", "-l", "warning")
	e.cmd.Stdout, e.cmd.Stderr = out, out
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	e.PID = e.cmd.Process.Pid
	go func() {
		_ = e.cmd.Wait() // its log has the reason of the end
		close(e.ended)
	}()
	return e, nil
}

// bootstrap returns the bootstrap of a gateway whose clusters and listeners come from a server by delta ADS.
func bootstrap(server, admin string, node *corev3.Node) ([]byte, error) {
	type object = map[string]any
	id, err := protojson.Marshal(node)
	if err != nil {
		return nil, err
	}
	address := func(at string) object {
		host, port, _ := net.SplitHostPort(at) // made by this program
		return object{"socket_address": object{"address": host, "port_value": json.Number(port)}}
	}
	const http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	source := object{"ads": object{}, "resource_api_version": "V3"}
	return json.Marshal(object{
		"node": json.RawMessage(id), "admin": object{"address": address(admin)},
		"dynamic_resources": object{
			"ads_config": object{"api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds"}}}},
			"cds_config": source, "lds_config": source,
		},
		"static_resources": object{"clusters": []any{object{"name": "xds", "connect_timeout": "1s", "type": "STATIC",
			"typed_extension_protocol_options": object{http2: object{"@type": "type.googleapis.com/" + http2,
				"explicit_http_config": object{"http2_protocol_options": object{}}}},
			"load_assignment": object{"cluster_name": "xds", "endpoints": []any{object{"lb_endpoints": []any{
				object{"endpoint": object{"address": address(server)}}}}}}}}},
	})
}

// Close ends the process.
func (e *Envoy) Close() {
	_ = e.cmd.Process.Kill()
	<-e.ended
}

// Answers waits until a request for a host at a port of the gateway is answered with 200, and returns the time of the
// answer. The error, when ctx ends or Envoy has ended, has the last answer.
func (e *Envoy) Answers(ctx context.Context, port int, host string) (time.Time, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		status, err := e.get(ctx, fmt.Sprintf("http://127.0.0.1:%d/", port), host)
		if status == http.StatusOK {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-e.ended:
			raw, _ := os.ReadFile(e.log)
			return time.Time{}, fmt.Errorf("envoy has ended: %s", raw[max(0, len(raw)-1000):])
		case <-ctx.Done():
			return time.Time{}, errors.Join(fmt.Errorf("host %s: status %d", host, status), err, ctx.Err())
		}
	}
}

func (e *Envoy) get(ctx context.Context, url, host string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	res, err := e.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// Live waits until Envoy has everything that its bootstrap requests. The error is that of ctx, or of Envoy's end.
func (e *Envoy) Live(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(e.admin)
	for {
		status, _ := e.get(ctx, "http://127.0.0.1:"+port+"/ready", "")
		if status == http.StatusOK {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-e.ended:
			raw, _ := os.ReadFile(e.log)
			return fmt.Errorf("envoy has ended: %s", strings.TrimSpace(string(raw[max(0, len(raw)-1000):])))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// RSS returns the resident memory in bytes. The error is that of /proc.
func (e *Envoy) RSS() (uint64, error) {
	p, err := gauge.ReadProcess(e.PID)
	return p.RSS, err
}
