package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Date requests the API server's time, which is the header Date of a response (RFC 9110, section 6.6.1). The response
// may have any status code. said is the time in whole seconds, rounded down. roundTrip is the time from the request to
// the header of the response. An error means that there is no response, or that the response is a redirect, states no
// valid time, or comes from a cache.
func (c *Client) Date(ctx context.Context) (said time.Time, roundTrip time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/version", http.NoBody)
	if err != nil {
		return said, 0, err
	}
	began := time.Now()
	answer, err := c.http.Do(request)
	if err != nil {
		return said, 0, err
	}
	roundTrip = time.Since(began)
	_ = answer.Body.Close() // the content is not read
	if answer.Header.Get("Age") != "" {
		return said, 0, errors.New("the API server's answer comes from a cache")
	}
	if said, err = http.ParseTime(answer.Header.Get("Date")); err != nil {
		return said, 0, fmt.Errorf("the API server's answer states no valid time: %w", err)
	}
	return said, roundTrip, nil
}
