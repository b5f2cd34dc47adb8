package seal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsv2 "k8s.io/kms/apis/v2"
)

// Limits of the KMS v2 protocol, in bytes (k8s.io/kms/apis/v2/api.proto).
const (
	maxKMSBytes       = 1 << 10  // of a ciphertext, and of a key id
	maxKMSAnnotations = 32 << 10 // of all annotations' names and values
)

// KMSConfig configures the connection to a Kubernetes KMS v2 plugin.
type KMSConfig struct {
	Socket  string        // path of the plugin's Unix socket, optionally with the prefix unix://
	Timeout time.Duration // timeout of one call; 0: 5 s
}

// KMS is a Provider that calls a Kubernetes KMS v2 plugin. Plugins for the API server also work here. The key
// encryption key stays in the plugin. Safe for concurrent use.
type KMS struct {
	conn    *grpc.ClientConn
	plugin  kmsv2.KeyManagementServiceClient
	socket  string
	timeout time.Duration
}

// NewKMS returns the provider without connecting to the plugin. While the plugin does not answer, calls of the
// provider's methods fail with ErrUnavailable. The caller must close the provider after use. NewKMS fails if the path
// in cfg.Socket is empty or contains "://", or if gRPC does not accept it.
func NewKMS(cfg KMSConfig) (*KMS, error) {
	path := strings.TrimPrefix(cfg.Socket, "unix://")
	if path == "" || strings.Contains(path, "://") {
		return nil, fmt.Errorf("KMS plugin: socket %q: want the path of a Unix socket", cfg.Socket)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("KMS plugin at %s: %w", path, err)
	}
	return &KMS{conn: conn, plugin: kmsv2.NewKeyManagementServiceClient(conn), socket: path, timeout: cfg.Timeout}, nil
}

// Close closes the connection to the plugin. Later calls to the plugin fail, and so does a second Close.
func (k *KMS) Close() error { return k.conn.Close() }

// Name implements Provider. It returns "kms-v2".
func (*KMS) Name() string { return "kms-v2" }

// Check requests the plugin's status. It returns nil if the plugin is healthy, speaks version v2 or v2beta1, and
// reports a key id of 1 to 1,024 bytes. Any error wraps ErrUnavailable, and states the reason.
func (k *KMS) Check(ctx context.Context) error {
	_, err := k.keyID(ctx)
	return err
}

// Newest implements Provider. It requests the id of the plugin's current key. The returned function reports whether its
// argument has this key id. Errors are those of Check.
func (k *KMS) Newest(ctx context.Context) (func(Wrapped) bool, error) {
	id, err := k.keyID(ctx)
	if err != nil {
		return nil, err
	}
	return func(w Wrapped) bool { return w.KeyID == id }, nil
}

// keyID returns the id of the plugin's current key. Errors are those of Check.
func (k *KMS) keyID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	resp, err := k.plugin.Status(ctx, &kmsv2.StatusRequest{})
	switch {
	case err != nil:
		return "", k.failed(ErrUnavailable, "status", err)
	case resp.Version != "v2" && resp.Version != "v2beta1":
		return "", fmt.Errorf("%w: KMS plugin at %s speaks version %q, want v2", ErrUnavailable, k.socket, resp.Version)
	case resp.Healthz != "ok":
		return "", fmt.Errorf("%w: KMS plugin at %s reports health %q", ErrUnavailable, k.socket, resp.Healthz)
	case resp.KeyId == "" || len(resp.KeyId) > maxKMSBytes:
		return "", fmt.Errorf("%w: KMS plugin at %s broke its protocol: key id of %d bytes", ErrUnavailable, k.socket, len(resp.KeyId))
	}
	return resp.KeyId, nil
}

// Wrap implements Provider. ErrUnavailable: the plugin does not answer, refuses, or returns values outside the bounds
// of the protocol.
func (k *KMS) Wrap(ctx context.Context, key Secret) (Wrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	resp, err := k.plugin.Encrypt(ctx, &kmsv2.EncryptRequest{Plaintext: key, Uid: rand.Text()})
	if err != nil {
		return Wrapped{}, k.failed(ErrUnavailable, "encrypt", err)
	}
	size := 0
	for name, value := range resp.Annotations {
		size += len(name) + len(value)
	}
	var wrong error
	switch {
	case len(resp.Ciphertext) == 0 || len(resp.Ciphertext) > maxKMSBytes:
		wrong = fmt.Errorf("ciphertext of %d bytes", len(resp.Ciphertext))
	case resp.KeyId == "" || len(resp.KeyId) > maxKMSBytes:
		wrong = fmt.Errorf("key id of %d bytes", len(resp.KeyId))
	case size > maxKMSAnnotations:
		wrong = fmt.Errorf("annotations of %d bytes", size)
	}
	if wrong != nil {
		return Wrapped{}, fmt.Errorf("%w: KMS plugin at %s broke its protocol: %w", ErrUnavailable, k.socket, wrong)
	}
	return Wrapped{KeyID: resp.KeyId, Data: resp.Ciphertext, Annotations: maps.Clone(resp.Annotations)}, nil
}

// Unwrap implements Provider. ErrTampered: the plugin answers InvalidArgument. ErrUnavailable: any other failure.
func (k *KMS) Unwrap(ctx context.Context, w Wrapped) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	request := &kmsv2.DecryptRequest{Ciphertext: w.Data, Uid: rand.Text(), KeyId: w.KeyID, Annotations: w.Annotations}
	resp, err := k.plugin.Decrypt(ctx, request)
	if status.Code(err) == codes.InvalidArgument { // the ciphertext is not the plugin's
		return nil, k.failed(ErrTampered, "decrypt", err)
	}
	if err != nil {
		return nil, k.failed(ErrUnavailable, "decrypt", err)
	}
	return resp.Plaintext, nil
}

// failed returns an error that wraps the argument meaning, and contains the message of err. The argument meaning is
// ErrTampered if Decrypt failed with InvalidArgument, and ErrUnavailable for all other failures.
func (k *KMS) failed(meaning error, call string, err error) error {
	return fmt.Errorf("%w: %s by KMS plugin at %s: %w", meaning, call, k.socket, errors.New(status.Convert(err).Message()))
}
