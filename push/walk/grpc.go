package walk

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
)

// IsGRPC reports whether Envoy answers a request as one of gRPC: by its content type, whatever its protocol.
func IsGRPC(headers map[string]string) bool {
	const word = "application/grpc"
	of := headers["content-type"]
	return of == word || strings.HasPrefix(of, word+"+")
}

// GRPCStatus returns the status of gRPC with which Envoy answers a gRPC request in the place of an HTTP status. The
// status of HTTP is then 200.
func GRPCStatus(status int) codes.Code {
	switch status {
	case http.StatusBadRequest:
		return codes.Internal
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	}
	return codes.Unknown
}

// statusText returns an HTTP status, and for a gRPC request the status of gRPC that its client gets.
func statusText(status int, grpc bool) string {
	if !grpc {
		return fmt.Sprint(status)
	}
	return grpcText(GRPCStatus(status))
}

// grpcText returns a status of gRPC by number and name.
func grpcText(code codes.Code) string { return fmt.Sprintf("gRPC status %d (%v)", code, code) }
