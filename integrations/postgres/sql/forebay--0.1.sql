\echo Use "CREATE EXTENSION forebay" to load this file. \quit
