package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/loadtest/envoytest"
	"navarch.io/navarch/store/obs"
)

// writePair writes a self-signed pair with a common name, and gives the certificate's DER.
func writePair(t *testing.T, cert, key string) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: n, NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{SerialNumber: n}, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return der
}

// An operator's pair is parsed once per change, and half of a change leaves what was good.
func TestPairFiles(t *testing.T) {
	dir := t.TempDir()
	p := &pairFiles{cert: filepath.Join(dir, "c"), key: filepath.Join(dir, "k")}
	if _, err := p.pair(); err == nil {
		t.Fatal("files that are not there")
	}
	first := writePair(t, p.cert, p.key)
	a, err := p.pair()
	if err != nil || !bytes.Equal(a.Certificate[0], first) {
		t.Fatal(err)
	}
	if b, _ := p.pair(); b != a {
		t.Error("parsed again without a change")
	}
	writePair(t, p.cert, "") // without its key
	if b, err := p.pair(); err != nil || b != a {
		t.Errorf("half of a change: %v", err)
	}
	second := writePair(t, p.cert, p.key)
	if b, err := p.pair(); err != nil || !bytes.Equal(b.Certificate[0], second) {
		t.Errorf("after the change: %v", err)
	}
}

// Handshakes under one state of the keyring share one configuration; another state, another one.
func TestOneConfigurationPerState(t *testing.T) {
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(&config{})
	if err != nil {
		t.Fatal(err)
	}
	one, two := &keyring.State{Active: root, Bundle: root.Roots}, &keyring.State{Active: root, Bundle: root.Roots}
	a, err := s.under(one)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := s.under(one); a != b {
		t.Error("two configurations under one state: work for each handshake")
	}
	b, err := s.under(two)
	if err != nil || a == b {
		t.Errorf("one configuration under two states: the roots of before (%v)", err)
	}
	if b.Certificates[0].Leaf != a.Certificates[0].Leaf {
		t.Error("a new serving certificate without need")
	}
}

// blocking counts the handshakes that are under way, and ends them when it is told.
type blocking struct {
	credentials.TransportCredentials
	mu           sync.Mutex
	now, highest int
	end          chan struct{}
}

func (b *blocking) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	b.mu.Lock()
	b.now++
	b.highest = max(b.highest, b.now)
	b.mu.Unlock()
	<-b.end
	b.mu.Lock()
	b.now--
	b.mu.Unlock()
	return c, nil, nil
}

func (b *blocking) Clone() credentials.TransportCredentials { return b }

// No more handshakes are under way than there are places, and all get their turn.
func TestHandshakesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, clients = 3, 20
		inner := &blocking{TransportCredentials: credentials.NewTLS(&tls.Config{}), end: make(chan struct{})}
		c := boundHandshakes(inner, places, obs.NewSampled(quiet))
		var all sync.WaitGroup
		for range clients {
			_, server := net.Pipe()
			all.Go(func() {
				if _, _, err := c.Clone().ServerHandshake(server); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if inner.now != places {
			t.Errorf("%d handshakes at once, want %d", inner.now, places)
		}
		for range clients {
			inner.end <- struct{}{}
		}
		all.Wait()
		if inner.highest != places {
			t.Errorf("%d handshakes at once, want at most %d", inner.highest, places)
		}
	})
}

// A handshake that fails for the client's fault is logged by its cause, and one of which the client says nothing is not.
func TestFailedHandshakesAreLogged(t *testing.T) {
	dir := t.TempDir()
	files := &pairFiles{cert: filepath.Join(dir, "c"), key: filepath.Join(dir, "k")}
	writePair(t, files.cert, files.key)
	conf := secureBase()
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.pair() }
	conf.ClientAuth, conf.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	for cause, client := range map[string]func(net.Conn){
		"": func(c net.Conn) { c.Close() },
		"the client does not speak TLS": func(c net.Conn) {
			_, _ = c.Write([]byte("PRI * HTTP/2.0\r\n\r\n"))
			_, _ = io.Copy(io.Discard, c)
		},
		"alert of the client": func(c net.Conn) { _ = tls.Client(c, &tls.Config{ServerName: "other"}).Handshake() },
		"certificate of the client": func(c net.Conn) {
			pair, err := files.pair()
			if err != nil {
				t.Error(err)
				return
			}
			over := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*pair}})
			_ = over.Handshake()
			_, _ = io.Copy(io.Discard, over)
		},
	} {
		log := &envoytest.Output{}
		creds := boundHandshakes(credentials.NewTLS(conf), 1, obs.NewSampled(slog.New(slog.NewTextHandler(log, nil))))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var dialled sync.WaitGroup
		dialled.Go(func() {
			if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
				client(c)
				c.Close()
			}
		})
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = creds.ServerHandshake(conn); err == nil {
			t.Errorf("%s: no error", cause)
		}
		conn.Close()
		l.Close()
		dialled.Wait()
		if got := log.String(); (got == "") != (cause == "") || !strings.Contains(got, cause) || cause != "" && !strings.Contains(got, "peer=127.0.0.1:") {
			t.Errorf("%s (%v): %s", cause, err, got)
		}
	}
}
