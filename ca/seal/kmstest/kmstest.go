// Package kmstest is a KMS v2 plugin for tests. Tests can stop and resume it, rotate its key, and count its calls.
//
// Owns: a Unix socket in a temporary directory.
// Reads: nothing.
// Never: is used outside tests.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsv2 "k8s.io/kms/apis/v2"
)

// Plugin is a KMS v2 plugin in the test's process. Its keys survive Stop and Resume. Stop and Resume must not be called
// concurrently.
type Plugin struct {
	kmsv2.UnimplementedKeyManagementServiceServer
	Encrypts, Decrypts atomic.Int64 // numbers of calls, including failed calls
	Refuses            atomic.Bool  // while true, Status and Encrypt fail with InvalidArgument

	t       testing.TB
	socket  string
	mu      sync.Mutex
	keys    map[string]cipher.AEAD
	newest  string
	dropped int          // number of keys that DropOldKeys has deleted
	server  *grpc.Server // nil: stopped
	done    chan struct{}
}

// Start runs a plugin with one key until the test ends. If the plugin cannot start, the test fails at once.
func Start(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{t: t, socket: filepath.Join(dir, "s"), keys: map[string]cipher.AEAD{}}
	t.Cleanup(func() { p.Stop(); _ = os.RemoveAll(dir) })
	p.RotateKey()
	p.Resume()
	return p
}

// Socket returns the path of the plugin's socket.
func (p *Plugin) Socket() string { return p.socket }

// RotateKey makes a new key for later encryptions. Older keys still decrypt.
func (p *Plugin) RotateKey() {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		p.t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = fmt.Sprintf("key-%d", len(p.keys)+p.dropped+1)
	p.keys[p.newest] = gcm
}

// DropOldKeys deletes every key except the newest. Data that was encrypted under a deleted key no longer decrypts.
func (p *Plugin) DropOldKeys() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.keys {
		if id != p.newest {
			delete(p.keys, id)
			p.dropped++
		}
	}
}

// Stop stops the plugin and closes its connections. It does nothing if the plugin is stopped already.
func (p *Plugin) Stop() {
	if p.server != nil {
		p.server.Stop()
		<-p.done
		p.server = nil
	}
}

// Resume starts the stopped plugin again, with its keys, on the same socket. Call it only after Stop. The test fails at
// once if the socket cannot be opened.
func (p *Plugin) Resume() {
	p.t.Helper()
	_ = os.Remove(p.socket)
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	p.server, p.done = server, done
	kmsv2.RegisterKeyManagementServiceServer(server, p)
	go func() { defer close(done); _ = server.Serve(listener) }()
}

var errRefused = status.Error(codes.InvalidArgument, "the plugin refuses")

// Status implements kmsv2.KeyManagementServiceServer. It reports health and the id of the newest key, or fails with
// InvalidArgument if Refuses is set.
func (p *Plugin) Status(context.Context, *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	if p.Refuses.Load() {
		return nil, errRefused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv2.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.newest}, nil
}

// Encrypt implements kmsv2.KeyManagementServiceServer. It uses the newest key, and returns two annotations. It fails
// with InvalidArgument if Refuses is set.
func (p *Plugin) Encrypt(_ context.Context, in *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	p.Encrypts.Add(1)
	if p.Refuses.Load() {
		return nil, errRefused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsv2.EncryptResponse{Ciphertext: p.keys[p.newest].Seal(nil, nil, in.Plaintext, nil), KeyId: p.newest,
		Annotations: map[string][]byte{"b.kmstest.navarch.io": []byte("two"), "a.kmstest.navarch.io": []byte("one")}}, nil
}

// Decrypt implements kmsv2.KeyManagementServiceServer. NotFound: the key is unknown, or the annotation
// a.kmstest.navarch.io does not have the value that Encrypt returned. InvalidArgument: the ciphertext does not decrypt.
// Refuses has no effect on Decrypt.
func (p *Plugin) Decrypt(_ context.Context, in *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	p.Decrypts.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	key, ok := p.keys[in.KeyId]
	if !ok || string(in.Annotations["a.kmstest.navarch.io"]) != "one" {
		return nil, status.Errorf(codes.NotFound, "no key %q", in.KeyId)
	}
	plain, err := key.Open(nil, nil, in.Ciphertext, nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the ciphertext does not open")
	}
	return &kmsv2.DecryptResponse{Plaintext: plain}, nil
}
