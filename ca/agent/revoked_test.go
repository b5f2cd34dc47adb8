package agent

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// talk requests a page from the server's Envoy with a certificate, over one TLS version, and reports whether the
// session was resumed.
func (m *mesh) talk(pair tls.Certificate, version uint16, sessions tls.ClientSessionCache) (resumed bool, err error) {
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, ServerName: "server", MinVersion: version, MaxVersion: version,
		ClientSessionCache: sessions}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.inbound), conf)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "HTTP/1.1 200") {
		err = fmt.Errorf("answered %.60q", answer)
	}
	return conn.ConnectionState().DidResume, err
}

// keepsake is a session cache that offers one session for ever, as a thief would.
type keepsake struct{ first *tls.ClientSessionState }

func (k *keepsake) Get(string) (*tls.ClientSessionState, bool) { return k.first, k.first != nil }
func (k *keepsake) Put(_ string, s *tls.ClientSessionState) {
	if k.first == nil {
		k.first = s
	}
}

// TestEnvoyRefusesRevoked: a list that is pushed closes the server's Envoy to the certificate in it, whether a client
// makes a new handshake or offers a session from before: Envoy makes a new TLS context for a new validation context,
// and resumes nothing of the one before (seen also with ticket keys that are configured, so that both could read them).
// Other certificates go on, under the same list.
func TestEnvoyRefusesRevoked(t *testing.T) {
	m := startMesh(t, 0)
	current, _ := m.ca.Current()
	bad := m.client.Identity()
	m.client.Renew()
	m.until("a second certificate of the client", func() bool { return m.client.Identity() != bad })
	good, number := m.client.Identity().TLS(), int64(0)
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		trust := func(serials ...string) {
			t.Helper()
			number++
			if err := m.server.SetTrust(roots(current.Authority), list(t, current.Authority, number, serials...)); err != nil {
				t.Fatal(err)
			}
		}
		offered := func(session *keepsake, resumed bool) func() bool {
			return func() bool {
				did, err := m.talk(bad.TLS(), version, session)
				return err == nil && did == resumed
			}
		}
		before := &keepsake{}
		m.until(name+": sessions are resumed", offered(before, true))
		trust()
		m.until(name+": no session outlives a new list", offered(before, false))
		under := &keepsake{}
		m.until(name+": sessions are resumed under a list", offered(under, true))
		trust(bad.Serial)
		began := time.Now()
		m.until(name+": the certificate is refused", func() bool { _, err := m.talk(bad.TLS(), version, nil); return err != nil })
		t.Logf("%s: refused after %v", name, time.Since(began))
		for what, session := range map[string]tls.ClientSessionCache{"no session": nil, "a session without lists": before, "a session under the list before": under} {
			if resumed, err := m.talk(bad.TLS(), version, session); err == nil || resumed {
				t.Errorf("%s: a revoked certificate with %s: resumed %v, %v", name, what, resumed, err)
			}
		}
		if _, err := m.talk(good, version, nil); err != nil {
			t.Errorf("%s: another certificate: %v", name, err)
		}
		trust() // the next round begins with it allowed
		m.until(name+": allowed again", offered(&keepsake{}, false))
	}
}

// The same list makes the client's Envoy refuse a server whose certificate is revoked.
func TestEnvoyRefusesRevokedServer(t *testing.T) {
	m := startMesh(t, 0)
	current, _ := m.ca.Current()
	for number, serials := range [][]string{{}, {m.server.Identity().Serial}, {}, {m.server.Identity().Serial}} {
		if err := m.client.SetTrust(roots(current.Authority), list(t, current.Authority, int64(number+1), serials...)); err != nil {
			t.Fatal(err)
		}
		if len(serials) == 0 {
			m.until("traffic flows", func() bool { return m.get() == nil })
			continue
		}
		m.until("the server is refused", func() bool { return m.get() != nil })
		for range 5 {
			if err := m.get(); err == nil || !strings.Contains(err.Error(), "503") {
				t.Fatalf("a revoked server: %v", err)
			}
		}
	}
}
