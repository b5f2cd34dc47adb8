package admit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"navarch.io/navarch/store/scan"
)

// firstBytes is what a review takes of the room before any byte of its body has come; most need no more. It takes the rest of what it announces once
// these have come.
const firstBytes = 32 << 10

// endless is how many JSON values a body may have that is read to its end: what it is about no longer matters. No API server sends a Pod with as many.
const endless = 2 * maxValues

// read reads the body of a request. Its memory grows as bytes come, whatever the request announces.
func (s *Server) read(ctx context.Context, w http.ResponseWriter, r *http.Request, held *claim) ([]byte, *refusal) {
	announced := r.ContentLength
	if announced > s.MaxBody {
		return nil, tooLarge(s.MaxBody)
	}
	if announced < 0 { // it does not say
		announced = s.MaxBody
	}
	first := min(announced, firstBytes)
	if s.room.take(ctx, held, first) != nil {
		return nil, noRoom
	}
	head := http.NewResponseController(w) // tests have writers without deadlines
	body, left := make([]byte, 0, min(first, 4<<10)+1), s.BodyTime
	var came scan.Separators
	for {
		began := time.Now()
		_ = head.SetReadDeadline(began.Add(left))
		n, err := r.Body.Read(body[len(body):cap(body)])
		left -= time.Since(began)
		body = body[:len(body)+n]
		came.Add(body[len(body)-n:])
		switch {
		case came.Commas > endless:
			w.Header().Set("Connection", "close")
			return nil, &refusal{http.StatusRequestEntityTooLarge, "values", fmt.Errorf("the AdmissionReview has more than %d JSON values", endless)}
		case int64(len(body)) > s.MaxBody:
			return nil, tooLarge(s.MaxBody)
		case errors.Is(err, io.EOF):
			_ = head.SetReadDeadline(time.Time{}) // else it stands, for what net/http reads of a body that nobody wants
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded) || left <= 0:
			w.Header().Set("Connection", "close")
			return nil, &refusal{http.StatusRequestTimeout, "body", fmt.Errorf("the body did not come within %v", s.BodyTime)}
		case err != nil:
			return nil, &refusal{http.StatusBadRequest, "body", fmt.Errorf("the body cannot be read: %w", err)}
		case len(body) < cap(body):
			continue
		}
		if int64(len(body)) > first && held.bytes == first {
			if s.room.take(ctx, held, announced-first) != nil {
				return nil, noRoom
			}
		}
		body = slices.Grow(body, int(min(int64(len(body)), announced+1-int64(len(body)))))
	}
}

func tooLarge(limit int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "size", fmt.Errorf("the AdmissionReview has more than %d bytes", limit)}
}
