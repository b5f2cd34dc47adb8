package walk

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
)

// IsGRPC reports whether Envoy treats a request with these headers as a gRPC request. The content-type must be
// "application/grpc" or begin with "application/grpc+". The names of headers are in lower case.
func IsGRPC(headers map[string]string) bool {
	const word = "application/grpc"
	of := headers["content-type"]
	return of == word || strings.HasPrefix(of, word+"+")
}

// GRPCStatus returns the gRPC status that Envoy sends to a gRPC client in place of an HTTP status. The answer with the
// gRPC status has HTTP status 200. All statuses without a gRPC counterpart become codes.Unknown, and 200 does too.
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

// statusText returns an HTTP status as a text. For a gRPC request it describes the gRPC status that the client gets.
func statusText(status int, grpc bool) string {
	if !grpc {
		return fmt.Sprint(status)
	}
	return grpcText(GRPCStatus(status))
}

// grpcText returns a text with the number and the name of a gRPC status.
func grpcText(code codes.Code) string { return fmt.Sprintf("gRPC status %d (%v)", code, code) }
