package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"navarch.io/navarch/deploy/demo/show"
)

// rawPort is the app's port for connections that the mesh treats as plain TCP.
const rawPort = 9090

// interceptDemo runs `make demo-intercept`: the same programs, but the kernel redirects all traffic of two workloads to
// their Envoys, as in a cluster.
func interceptDemo(ctx context.Context, root, built string) (rows []show.Row, err error) {
	if err := canIntercept(); err != nil {
		return nil, fmt.Errorf("real redirection needs root, ip and setpriv: %w", err)
	}
	m, err := newMesh(root, "deploy/demo/intercept", built)
	if err != nil {
		return nil, err
	}
	defer m.discard(&err)
	if m.services, err = readServices(m.config); err != nil {
		return nil, err
	}
	if len(m.services.workloads) != 2 {
		return nil, fmt.Errorf("%d Pods, want 2", len(m.services.workloads))
	}
	spaces, down, err := wireUp(ctx, m.agent, []string{m.services.workloads[0].ip, m.services.workloads[1].ip})
	if err != nil {
		return nil, err
	}
	defer down()
	if err := m.placeIn(spaces); err != nil {
		return nil, err
	}
	fmt.Printf("2 workloads in network namespaces %s and %s; control plane on %s; logs in %s/logs\n\n",
		spaces[0].name, spaces[1].name, m.grpc, m.dir)
	rows = m.play(ctx, m.interceptSteps())
	m.finish(ctx, rows, []string{
		fmt.Sprintf("ip netns exec %s curl -s -H 'Host: server' http://10.96.0.10/", spaces[0].name),
		fmt.Sprintf("ip netns exec %s curl -s 127.0.0.1:15000/clusters", spaces[0].name),
		fmt.Sprintf("$EDITOR %s/mesh.yaml", m.config),
	})
	return rows, nil
}

// placeIn assigns the workloads to their namespaces: the app as root, agent and Envoy as the uid that redirection
// exempts. That uid may lack access to the source tree, so it gets copies of the two programs.
func (m *mesh) placeIn(spaces []netns) error {
	m.listen = spaces[0].host // plain-text xDS for the two namespaces only
	if err := m.choosePorts(); err != nil {
		return err
	}
	if err := os.Chmod(m.dir, 0o755); err != nil {
		return err
	}
	for _, p := range []*string{&m.agent, &m.envoy} {
		b, err := os.ReadFile(*p)
		if err != nil {
			return err
		}
		*p = filepath.Join(m.dir, filepath.Base(*p))
		if err := os.WriteFile(*p, b, 0o755); err != nil {
			return err
		}
	}
	uid, err := strconv.Atoi(proxyUID)
	if err != nil {
		return err
	}
	for i, w := range m.services.workloads {
		n := spaces[i]
		config := filepath.Join(m.dir, w.pod)
		if err := errors.Join(os.Mkdir(config, 0o755), os.Chown(config, uid, uid)); err != nil {
			return err
		}
		enter := []string{"ip", "netns", "exec", n.name}
		m.places[w.pod] = place{
			app: fmt.Sprintf("0.0.0.0:%d,0.0.0.0:%d", appPort,
				rawPort), admin: "127.0.0.1:15000", status: "127.0.0.1:15021", debug: "127.0.0.1:15004",
			enter: enter, config: config, mode: "REDIRECT",
			asProxy: append(enter[:len(enter):len(enter)], "setpriv", "--reuid", proxyUID, "--regid",
				proxyUID, "--clear-groups", "--pdeathsig", "KILL"),
			client: &http.Client{Timeout: askLimit, Transport: &http.Transport{DialContext: n.dial}},
		}
	}
	m.front = m.services.workloads[0]
	m.web = newCaller("http://127.0.0.1:"+strconv.Itoa(appPort), "client", spaces[0].dial)
	// The Pod's own address, without a Service.
	m.services.upstreams["pod"] = fmt.Sprintf("http://%s:%d", m.services.workloads[1].ip, appPort)
	return nil
}

func (m *mesh) interceptSteps() []step {
	return []step{
		{"start", "control plane ready, both Envoys LIVE", m.start},
		{"HTTP to a ClusterIP", "200, through both Envoys",
			m.passes("server/", `^cluster\.outbound\|80\|\|server\.redirect\.svc\.cluster\.local;?\.upstream_rq_200$`,
				`^cluster\.inbound\|9080\|\|;?\.upstream_rq_200$`)},
		{"TCP to a ClusterIP", "200, through both Envoys",
			m.passes("raw/", `^cluster\.outbound\|9000\|\|raw\.redirect\.svc\.cluster\.local;?\.upstream_cx_total$`,
				`^listener\.0\.0\.0\.0_15006\.downstream_cx_total$`)},
		{"to the pod's own address", "200, passed through",
			m.passes("pod/", `^cluster\.PassthroughCluster;?\.upstream_cx_total$`, `^listener\.0\.0\.0\.0_15006\.downstream_cx_total$`)},
		{"a certificate for each workload", "its service account's, from the CA", m.identities},
		{"PERMISSIVE becomes STRICT, live", "past the mesh: refused; through it: 0 failed", m.strict},
		{"fault of the VirtualService", "418, server not asked", m.teapot(418)},
		{"edit it live", "451 while traffic flows, 0 failed", m.editTeapot},
		{"control plane killed", "traffic goes on, 0 failed",
			func(ctx context.Context) (string, error) { return m.killControlPlane(ctx, "server/") }},
		{"control plane restarted", "0 response bytes, requests only",
			func(ctx context.Context) (string, error) { return m.restartControlPlane(ctx, "server/") }},
		{"rotation of the root", "every leaf by the next epoch, 0 failed",
			func(ctx context.Context) (string, error) { return m.rotate(ctx, "server/") }},
	}
}

// strict refuses plain text while traffic flows: afterwards a direct call to the Pod's own address fails.
func (m *mesh) strict(ctx context.Context) (string, error) {
	return m.under(ctx, "server/", func() (string, error) {
		err := editObject(m.config, "PeerAuthentication", "default", func(obj map[string]any) error {
			obj["spec"] = map[string]any{"mtls": map[string]any{"mode": "STRICT"}}
			return nil
		})
		if err != nil {
			return "", err
		}
		wrote := time.Now()
		err = m.children.await(ctx, "refusal of plain text", liveLimit, func(ctx context.Context) error {
			if r := m.web.call(ctx, "pod/"); r.err == nil && r.status == http.StatusOK {
				return errors.New("plain text is still answered")
			}
			return nil
		})
		took := time.Since(wrote)
		pause(ctx, time.Second/2)
		return fmt.Sprintf("refused after %d ms", took.Milliseconds()), err
	})
}

// passes calls through the mesh, and checks by Envoy's counters, outbound at the client and inbound at the server, that
// both proxies forwarded the call.
func (m *mesh) passes(path, out, in string) func(context.Context) (string, error) {
	server := m.services.workloads[1]
	return func(ctx context.Context) (string, error) {
		count := func() (a, b int, err error) {
			if a, err = m.stat(ctx, m.front, out); err == nil {
				b, err = m.stat(ctx, server, in)
			}
			return a, b, err
		}
		a0, b0, err := count()
		if err != nil {
			return "", err
		}
		r := m.web.call(ctx, path)
		a1, b1, err := count()
		measured := fmt.Sprintf("status %d from %s in %.1f ms; counted %d at the client's, %d at the server's Envoy",
			r.status, r.name, r.took.Seconds()*1000, a1-a0, b1-b0)
		switch {
		case err != nil || r.err != nil:
			return measured, errors.Join(err, r.err)
		case r.status != http.StatusOK || r.name != "server":
			return measured, errors.New("want 200 from server")
		case a1 == a0 || b1 == b0:
			return measured, errors.New("an Envoy was passed by")
		}
		return measured, nil
	}
}

func (m *mesh) teapot(want int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r := m.web.call(ctx, "server/teapot")
		measured := fmt.Sprintf("status %d in %.1f ms", r.status, r.took.Seconds()*1000)
		if r.status != want || r.name == "server" {
			return measured, fmt.Errorf("want %d from the client's Envoy: %w", want, errors.Join(r.err))
		}
		return measured, nil
	}
}

func (m *mesh) editTeapot(ctx context.Context) (string, error) {
	return m.under(ctx, "server/", func() (string, error) {
		pause(ctx, time.Second/2)
		err := editObject(m.config, "VirtualService", "server", func(obj map[string]any) error {
			spec, _ := obj["spec"].(map[string]any)
			rules, _ := spec["http"].([]any)
			if len(rules) == 0 {
				return errors.New("no http rules")
			}
			rule, _ := rules[0].(map[string]any)
			rule["fault"] = map[string]any{"abort": map[string]any{"httpStatus": 451, "percentage": map[string]any{"value": 100}}}
			return nil
		})
		if err != nil {
			return "", err
		}
		wrote := time.Now()
		err = m.children.await(ctx, "the edit", liveLimit, func(ctx context.Context) error {
			_, err := m.teapot(451)(ctx)
			return err
		})
		took := time.Since(wrote)
		pause(ctx, time.Second/2)
		return fmt.Sprintf("451 after %d ms", took.Milliseconds()), err
	})
}
