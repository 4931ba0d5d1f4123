package hub

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// Errors of a hub, to be told apart with errors.Is. All but ErrUnavailable,
// ErrChecksum and ErrLength are final at the first sight.
var (
	ErrNotFound     = errors.New("not on the hub")                               // 404
	ErrUnauthorized = errors.New("the hub wants a valid token")                  // 401
	ErrForbidden    = errors.New("access is refused")                            // 403
	ErrUnavailable  = errors.New("the hub does not deliver")                     // retries used up
	ErrHTML         = errors.New("the server sent a web page instead of a file") // captive portal, proxy, login page
	ErrLength       = errors.New("wrong length")
	ErrChecksum     = errors.New("wrong checksum")
	ErrDiskFull     = errors.New("the disk is full")
	ErrOffline      = errors.New("not in the cache, and the network is not used (offline)")
	ErrListing      = errors.New("the hub's list of files is not usable")
)

// statusError is an HTTP answer other than the wanted one.
type statusError struct {
	code int
	url  string
	wait time.Duration // Retry-After, -1 = not stated
	note string        // X-Error-Message of the hub
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: HTTP status %d", e.url, e.code)
	if e.note != "" {
		s += " (" + e.note + ")"
	}
	return s
}

// transient says whether another try may help.
func (e *statusError) transient() bool {
	return e.code == 408 || e.code == 425 || e.code == 429 || e.code >= 500 && e.code != 501 && e.code != 505
}

// explain turns final HTTP statuses into the package's errors, with what to do.
func explain(err error, repo, rev string) error {
	var s *statusError
	if !errors.As(err, &s) {
		return err
	}
	switch s.code {
	case 401:
		return fmt.Errorf("%s: %w: it is private, gated or does not exist; set HF_TOKEN to a token that may read it: %w", repo, ErrUnauthorized, err)
	case 403:
		if errors.Is(err, ErrUnavailable) { // of a storage service, see do
			return err
		}
		return fmt.Errorf("%s: %w: accept the model's licence on its page with the account that the token belongs to: %w", repo, ErrForbidden, err)
	case 404:
		return fmt.Errorf("%s at revision %s: %w: %w", repo, rev, ErrNotFound, err)
	}
	return err
}

// diskError names a full disk.
func diskError(err error, dir string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s: %w; free some space and pull again, what has arrived is kept: %w", dir, ErrDiskFull, err)
	}
	return err
}

// clean is a URL without its query, which may be a signature.
func clean(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// cleanError drops the query from the URL of an error of net/http.
func cleanError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if p, perr := url.Parse(u.URL); perr == nil {
			return fmt.Errorf("%s: %w", clean(p), u.Err)
		}
		return u.Err
	}
	return err
}

// retryAfter reads the header: seconds or a date; -1 = absent or unreadable.
func retryAfter(v string, now time.Time) time.Duration {
	if v == "" {
		return -1
	}
	if s, err := strconv.Atoi(v); err == nil && s >= 0 && s < 1<<30 {
		return time.Duration(s) * time.Second
	}
	for _, layout := range []string{time.RFC1123, time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, v); err == nil {
			return max(t.Sub(now), 0)
		}
	}
	return -1
}
