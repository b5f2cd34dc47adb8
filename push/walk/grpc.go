package walk

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
)

// IsGRPC reports whether Envoy treats a request as a gRPC request. Its content-type must be "application/grpc" or begin
// with "application/grpc+". The names of headers are in lower case.
func IsGRPC(headers map[string]string) bool {
	const word = "application/grpc"
	of := headers["content-type"]
	return of == word || strings.HasPrefix(of, word+"+")
}

// GRPCStatus returns the gRPC status that Envoy sends to a gRPC client in place of an HTTP status. The answer then has
// HTTP status 200. All statuses without a counterpart become codes.Unknown, also 200.
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

// statusText returns an HTTP status as a text; for a gRPC request, the gRPC status that its client gets.
func statusText(status int, grpc bool) string {
	if !grpc {
		return fmt.Sprint(status)
	}
	return grpcText(GRPCStatus(status))
}

// grpcText returns a gRPC status by number and name.
func grpcText(code codes.Code) string { return fmt.Sprintf("gRPC status %d (%v)", code, code) }
