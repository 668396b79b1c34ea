"""Systems of many devices, requests and boards, composed of times that come in as functions."""
